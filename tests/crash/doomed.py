"""A broker that kills itself with SIGKILL at the n-th call of a function that changes a file.

    python -m tests.crash.doomed --call pwrite --count 37 --moment torn -- broker --listen … --data-dir …

A kill from outside rarely hits the moment between two related system calls; this does. With `torn` only the first half
of the bytes of a write reach the file, as if the process died inside the system call.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

CALLS = ("pwrite", "replace", "rename", "ftruncate", "unlink", "fsync", "fdatasync", "open")
MOMENTS = ("before", "after", "torn")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def doom(call: str, count: int, moment: str) -> None:
    """Let the process die at the `count`-th call of ``os.<call>``; for ``open``, count only calls that may create."""
    original: Callable[..., Any] = getattr(os, call)
    calls = itertools.count(1)

    def doomed(*args: Any, **kwargs: Any) -> Any:
        counts = call != "open" or (len(args) > 1 and args[1] & os.O_CREAT)
        if not counts or next(calls) != count:
            return original(*args, **kwargs)
        if moment == "torn" and call == "pwrite":
            descriptor, data, position = args
            original(descriptor, memoryview(data)[: len(data) // 2], position)
        elif moment == "after":
            original(*args, **kwargs)
        _die()
        return None

    setattr(os, call, doomed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--call", choices=CALLS, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--moment", choices=MOMENTS, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    doom(args.call, args.count, args.moment)
    from ottla.cli.main import main as ottla

    return ottla([word for word in args.command if word != "--"])


if __name__ == "__main__":
    sys.exit(main())
