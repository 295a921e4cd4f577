"""The process from which Spark forks its Python workers: pyspark's own, quieter, and with the data source in memory.

`session()` names this module to Spark (`spark.python.daemon.module`) where workers run on the same machine. The data
source is imported before the fork, so that a worker starts in less time. Nothing that starts threads may be imported
here: they do not survive a fork.
"""

from __future__ import annotations

from pyspark import daemon

import ottla.spark.reading
import ottla.spark.source  # noqa: F401
from ottla.spark.processes import hush

if __name__ == "__main__":
    hush(daemon)
    daemon.manager()
