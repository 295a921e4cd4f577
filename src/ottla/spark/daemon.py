"""The process from which Spark forks its Python workers: pyspark's own, quieter, and with the data source in memory.

`session()` names this module to Spark (`spark.python.daemon.module`) where workers run on the same machine. Two things
are different. When Spark hangs up before a worker has sent its last bytes, which happens after planning on a busy
machine and means nothing, pyspark prints a traceback on the user's terminal; here it does not. And the data source is
imported before the fork, so that a worker starts in less time. Nothing that starts threads may be imported here: they
do not survive a fork.
"""

from __future__ import annotations

import sys
import traceback

from pyspark import daemon

import ottla.spark.reading
import ottla.spark.source  # noqa: F401


class _Traceback:
    """What pyspark's daemon uses of the module `traceback`."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
            traceback.print_exc()


if __name__ == "__main__":
    daemon.traceback = _Traceback
    daemon.manager()
