"""A step in Python for clicks.toml: a function that takes a DataFrame and returns one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def tidy(clicks: DataFrame, unknown: str) -> DataFrame:
    """Countries that are not known get a name, pages lose what follows a question mark."""
    return clicks.fillna({"country": unknown}).selectExpr("* EXCEPT (page)", "split_part(page, '?', 1) AS page")
