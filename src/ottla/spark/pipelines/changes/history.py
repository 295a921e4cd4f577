"""The end of each version of a row: valid_to is valid_from of the next version. No I/O.

Every change has a row of its own in the table, so a late change splits a version by being there. valid_to is derived
from the rows of the key, in the transaction that writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.spark.pipelines.declaration import VALID_FROM, VALID_TO, VERSION
from ottla.spark.pipelines.schemas import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE, _STORED, _ENDED = "_ottla_place", "_ottla_stored", "_ottla_ended"


def is_history(columns: Iterable[str]) -> bool:
    """Whether rows are versions, as a step with history makes them.

    >>> is_history(["id", "valid_from", "valid_to", "_version"]), is_history(["id", "valid_from", "valid_to"])
    (True, False)
    """
    return {VERSION, VALID_FROM, VALID_TO} <= {name.lower().strip('"`[]') for name in columns}


def close_versions(table: str, stage: str, keys: Sequence[str], valid_from: str, valid_to: str) -> str:
    """The statement that sets valid_to for the rows whose keys are in the staging table. All names are quoted.

    `keys` identify a row, without valid_from. MySQL does not read from the table it updates, except through a table
    of its own, hence the inner query.

    >>> close_versions("t", "s", ["id"], "valid_from", "valid_to")[:69]
    'UPDATE t SET valid_to = (SELECT MIN(later.valid_from) FROM (SELECT id'
    """
    same = " AND ".join(f"later.{key} = {table}.{key}" for key in keys)
    staged = " AND ".join(f"{stage}.{key} = {table}.{key}" for key in keys)
    columns = ", ".join([*keys, valid_from])
    later = f"(SELECT {columns} FROM {table}) later"
    return (
        f"UPDATE {table} SET {valid_to} = (SELECT MIN(later.{valid_from}) FROM {later} WHERE {same} "
        f"AND later.{valid_from} > {table}.{valid_from}) WHERE EXISTS (SELECT 1 FROM {stage} WHERE {staged})"
    )


def with_later_versions(rows: DataFrame, stored: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The versions in `rows`, and the `stored` ones of the same keys that now end elsewhere.

    For tables without SQL: the result replaces the rows with the same keys and valid_from.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    columns = [fn.col(quoted(name)) for name in keys]
    begins = fn.col(VALID_FROM)
    known = stored.withColumns({_STORED: fn.lit(True), _ENDED: fn.col(VALID_TO)})
    both = rows.unionByName(known, allowMissingColumns=True)
    newest = Window.partitionBy(*columns, begins).orderBy(fn.col(VERSION).desc(), fn.col(_STORED).asc_nulls_first())
    later = Window.partitionBy(*columns).orderBy(begins)
    kept = both.withColumn(_PLACE, fn.row_number().over(newest)).where(f"{_PLACE} = 1")
    ended = kept.withColumn(VALID_TO, fn.lead(begins).over(later))
    changed = ended.where(f"{_STORED} IS NULL OR NOT ({VALID_TO} <=> {_ENDED})")
    return changed.drop(_PLACE, _STORED, _ENDED)
