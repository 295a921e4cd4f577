"""pyspark's daemon, which forks Python processes, with what they need loaded before, and without noise.

`session()` sets this module as `spark.python.daemon.module` if workers run on the same machine. `ForkedReader.java`
uses it for the processes of streaming queries. A forked process starts in milliseconds, and shares the memory of
the loaded modules. Do not open connections here: threads do not survive a fork. Those of pyarrow and numpy do no work
yet, and both libraries start them again.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

import pyarrow as pa
from pyspark import daemon
from pyspark.sql.pandas import types

import ottla.spark.reading
import ottla.spark.source
from ottla.spark.processes import STREAM_READER, hush

_ = pa, types, ottla.spark


def _preload(module: str) -> None:
    import_module(module)
    if module == STREAM_READER:
        import_module("ottla.spark.lookup")
    gc.collect()
    gc.freeze()  # collections in a fork would copy the pages of these objects


if __name__ == "__main__":
    hush(daemon)
    _preload(sys.argv[1])
    daemon.manager()
