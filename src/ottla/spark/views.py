"""Topics as views of a Spark session, for ``ottla sql``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TEXT = ("cast(key as string) key", "cast(value as string) value")


def named_in(query: str, topics: Iterable[str]) -> list[str]:
    """The topics that a query names, as words or in backticks.

    >>> named_in("SELECT * FROM orders JOIN `my-users`", ["orders", "my-users", "users", "order"])
    ['orders', 'my-users']
    """
    return [name for name in topics if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", query)]


def make_views(spark: SparkSession, topics: Iterable[str], options: Mapping[str, str], *, as_text: bool = True) -> None:
    """Create a view of each topic, with keys and values as text or as bytes."""
    for topic in topics:
        frame = spark.read.format("ottla").options(**options).option("subscribe", topic)
        view = frame.option("includeHeaders", "true").load()
        if as_text:
            others = [name for name in view.columns if name not in ("key", "value")]
            view = view.selectExpr(*_TEXT, *others)
        view.createOrReplaceTempView(f"`{topic}`")
