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

_HUNG_UP = (BrokenPipeError, ConnectionResetError)
_DAEMON, _STREAM_READER = "pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner"

_settled = False


class _Traceback:
    """The part of the module `traceback` that pyspark's daemon uses."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], _HUNG_UP):
            traceback.print_exc()


def hush(daemon: ModuleType | None = None) -> None:
    """Silence the daemon's tracebacks about disconnects; does nothing in other processes."""
    if daemon is None and _main() == _DAEMON:
        daemon = sys.modules["__main__"]
    if daemon is not None and hasattr(daemon, "traceback"):
        daemon.traceback = _Traceback  # type: ignore[attr-defined]


def leave_if_hung_up() -> None:
    """Exit a stream reader quietly if Spark has disconnected."""
    if _main() == _STREAM_READER and isinstance(sys.exc_info()[1], EOFError):
        os._exit(0)


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
    return name if name is not None and name.startswith(("pyspark.", "ottla.spark.daemon")) else None
