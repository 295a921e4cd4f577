"""What is ours in the Python processes that Spark starts: less noise when it hangs up, less work between tasks.

Spark hangs up on its planners, workers and stream readers when it needs nothing more of them; on a busy machine that is
before their last bytes are sent. pyspark then prints a traceback, which ends on the user's terminal and means nothing.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from types import ModuleType

_HUNG_UP = (BrokenPipeError, ConnectionResetError)
_DAEMON, _STREAM_READER = "pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner"

_settled = False


class _Traceback:
    """What pyspark's daemon uses of the module `traceback`."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], _HUNG_UP):
            traceback.print_exc()


def hush(daemon: ModuleType | None = None) -> None:
    """Let the daemon of this process not tell that Spark hung up; nothing happens in other processes."""
    if daemon is None and _main() == _DAEMON:
        daemon = sys.modules["__main__"]
    if daemon is not None and hasattr(daemon, "traceback"):
        daemon.traceback = _Traceback  # type: ignore[attr-defined]


def leave_if_hung_up() -> None:
    """At the end of a stream reader: nobody listens to what pyspark would now tell of the end."""
    if _main() == _STREAM_READER and isinstance(sys.exc_info()[1], EOFError):
        os._exit(0)


def settle() -> None:
    """Leave what a worker has loaded by now out of the garbage collection that Spark runs after every task.

    It takes 30 ms of a core each time, as much as a small task.
    """
    global _settled  # noqa: PLW0603
    if not _settled and _main() is not None:
        _settled = True
        gc.collect()
        gc.freeze()


def _main() -> str | None:
    """The module that Spark has started this process with; None in a process of somebody else."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = getattr(spec, "name", None)
    return name if name is not None and name.startswith(("pyspark.", "ottla.spark.daemon")) else None
