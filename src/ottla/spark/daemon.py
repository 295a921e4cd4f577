"""pyspark's daemon, which forks the Python workers, with the data source preloaded and without noise.

`session()` sets this module as `spark.python.daemon.module` if workers run on the same machine. Importing the data
source before the fork makes workers start faster. Do not import anything that starts threads: they do not survive a
fork.
"""

from __future__ import annotations

from pyspark import daemon

import ottla.spark.reading
import ottla.spark.source  # noqa: F401
from ottla.spark.processes import hush

if __name__ == "__main__":
    hush(daemon)
    daemon.manager()
