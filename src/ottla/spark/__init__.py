"""Topics as tables and streams of Spark: ``format("ottla")`` on the Python Data Source API, without a jar.

>>> from ottla.spark import session
>>> spark = session()                                                                      # doctest: +SKIP
>>> spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")         # doctest: +SKIP

Needs ``pip install 'ottla[spark]'``. Importing this package imports neither pyspark nor pyarrow.
"""

from ottla.spark.finished import commit_finished
from ottla.spark.java import NoJava
from ottla.spark.lookup import DataLoss
from ottla.spark.options import OptionError
from ottla.spark.session import activate, prepare, session

__all__ = ["DataLoss", "NoJava", "OptionError", "activate", "commit_finished", "prepare", "session"]
