"""Adjust Spark's Python processes: no tracebacks when Spark disconnects, and less work between tasks.

Spark disconnects from planners, workers and stream readers when it is done with them; on a busy machine, before their
last bytes are sent. pyspark then prints a meaningless traceback on the terminal.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from types import ModuleType
from typing import Any

_HUNG_UP = (BrokenPipeError, ConnectionResetError)
_DAEMON, _OWN_DAEMON = "pyspark.daemon", "ottla.spark.daemon"
STREAM_READER = "pyspark.sql.streaming.python_streaming_source_runner"

_settled = False


class _Traceback:
    """The part of the module `traceback` that pyspark's daemon uses."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], _HUNG_UP):
            traceback.print_exc()


def _print(*values: object, **options: Any) -> None:
    """Like `print`, which pyspark's daemon uses to report that its last bytes were not sent."""
    if not isinstance(sys.exc_info()[1], _HUNG_UP):
        print(*values, **options)  # noqa: T201


def hush(daemon: ModuleType | None = None) -> None:
    """Silence the daemon's tracebacks about disconnects; does nothing in other processes."""
    if daemon is None and _main() == _DAEMON:
        daemon = sys.modules["__main__"]
    if daemon is not None and hasattr(daemon, "traceback"):
        daemon.traceback = _Traceback  # type: ignore[attr-defined]
        daemon.print = _print  # type: ignore[attr-defined]


def leave_if_hung_up() -> None:
    """Exit a stream reader quietly if Spark has disconnected."""
    if stream_reader() is not None and isinstance(sys.exc_info()[1], (EOFError, *_HUNG_UP)):
        os._exit(0)


def stream_reader() -> ModuleType | None:
    """pyspark's module that serves a streaming query, if this process does so."""
    main = _main()
    if main == _OWN_DAEMON and sys.argv[1:] == [STREAM_READER]:
        return sys.modules.get(STREAM_READER)
    return sys.modules["__main__"] if main == STREAM_READER else None


def settle() -> None:
    """Exclude the objects loaded so far from the garbage collection that Spark runs after every task.

    It takes 30 ms of CPU time each time, as much as a small task.
    """
    global _settled  # noqa: PLW0603
    if not _settled and _main() is not None:
        _settled = True
        gc.collect()
        gc.freeze()


def _main() -> str | None:
    """The module that Spark started this process with; None in other processes."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = getattr(spec, "name", None)
    return name if name is not None and name.startswith(("pyspark.", _OWN_DAEMON)) else None
