"""A step in Python for clicks.toml: a function that takes a DataFrame and returns one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def tidy(clicks: DataFrame, unknown: str) -> DataFrame:
    """Name unknown countries, and remove query strings from pages."""
    return clicks.fillna({"country": unknown}).selectExpr("* EXCEPT (page)", "split_part(page, '?', 1) AS page")
