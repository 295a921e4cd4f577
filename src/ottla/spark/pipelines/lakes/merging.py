"""Replace rows with the same keys in the files of a table, one file at a time. No I/O of its own.

A file that has none of the keys of a batch stays as it is. Otherwise it is written again without the rows that the
batch replaces or deletes. That takes the key columns of the batch and one piece of the file in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.declaration import ORIGIN
from ottla.spark.pipelines.lakes.columns import chunks, conformed
from ottla.spark.pipelines.lakes.contract import Bounds, TableFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.pipelines.backfill.plan import Range

#: Rows are compared, and files written, in pieces of about this size in memory.
PIECE_BYTES = 128 << 20
#: Up to so many keys are looked up by their values, more by the range of them.
FEW_KEYS = 200
_ROW, _NEW = "_ottla_row", "_ottla_new"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What became of one file."""

    file: Any
    added: Sequence[Any] | None
    """The files with the rows that stay; None if the file stays as it is."""
    newer: Any = None
    """The keys whose stored row is newer than that of the batch, as an Arrow table, or None."""


def bounds_of(keys: pa.Table, names: Sequence[str]) -> dict[str, Bounds]:
    """The range of each key column, or all values if they are few."""
    import pyarrow.compute as pc

    found = {}
    for name in names:
        ends = pc.min_max(keys[name]).as_py()
        values = pc.unique(keys[name]) if len(keys) <= FEW_KEYS else None
        few = tuple(values.to_pylist()) if values is not None else None
        found[name] = Bounds(ends["min"], ends["max"], few)
    return found


def rewrite(files: TableFiles, file: Any, keys: pa.Table, names: Sequence[str], sequence: str | None) -> Rewritten:
    """Write a file again without the rows that `keys` replaces. `keys` has one row per key, with its sequence."""
    import pyarrow as pa

    stays, newer = [], []
    wanted = [*names, *([sequence] if sequence and sequence not in names else [])]
    for piece in chunks(files.read(file, wanted), PIECE_BYTES):
        kept, older = split(piece, keys, names, sequence)
        stays.append(kept)
        newer.append(older)
    lost = pa.concat_tables(newer) if newer else None
    return _without(files, file, stays, lost if lost is not None and len(lost) else None)


def remove(files: TableFiles, file: Any, ranges: Sequence[Range]) -> Rewritten:
    """Write a file again without the rows of some records, which the columns of the origin tell."""
    pieces = chunks(files.read(file, ORIGIN[:3]), PIECE_BYTES)
    return _without(files, file, [_outside(piece, ranges) for piece in pieces])


def _outside(piece: pa.Table, ranges: Sequence[Range]) -> pa.Array:
    """Which rows are of other records."""
    import pyarrow as pa
    import pyarrow.compute as pc

    topic, partition, offset = (piece[name] for name in ORIGIN[:3])
    found = pa.chunked_array([pa.array([True] * len(piece), pa.bool_())])
    for one in ranges:
        place = pc.and_(pc.equal(topic, one.topic), pc.equal(partition, one.partition))
        inside = pc.and_(place, pc.and_(pc.greater_equal(offset, one.start), pc.less(offset, one.end)))
        found = pc.and_(found, pc.invert(pc.fill_null(inside, False)))
    return found.combine_chunks()


def bounds_of_ranges(ranges: Sequence[Range]) -> dict[str, Bounds]:
    """The columns of the origin in these ranges."""
    topics, partitions = sorted({one.topic for one in ranges}), sorted({one.partition for one in ranges})
    first, last = min(one.start for one in ranges), max(one.end for one in ranges) - 1
    return {
        "_topic": Bounds(topics[0], topics[-1], tuple(topics)),
        "_partition": Bounds(partitions[0], partitions[-1]),
        "_offset": Bounds(first, last),
    }


def _without(files: TableFiles, file: Any, stays: Sequence[pa.Array], lost: pa.Table | None = None) -> Rewritten:
    """Write a file again with the rows that stay."""
    import pyarrow as pa

    if all(one.true_count == len(one) for one in stays):
        return Rewritten(file, None, lost)
    mask = pa.chunked_array(stays, pa.bool_())
    added: list[Any] = []
    try:
        at = 0
        for piece in chunks(files.read(file), PIECE_BYTES):
            kept = piece.filter(mask.slice(at, len(piece)))
            at += len(piece)
            if len(kept):
                added += files.write(conformed(kept, files.schema))
    except BaseException:
        files.discard(added)
        raise
    return Rewritten(file, added, lost)


def split(piece: pa.Table, keys: pa.Table, names: Sequence[str], sequence: str | None) -> tuple[Any, pa.Table]:
    """Which rows stay, and the keys of those that are newer than the row of the batch with the same keys.

    >>> import pyarrow as pa
    >>> stored, batch = pa.table({"id": [1, 2, 3], "v": [5, 5, 5]}), pa.table({"id": [2, 3], "v": [6, 4]})
    >>> stays, newer = split(stored, batch, ["id"], "v")
    >>> stays.to_pylist(), newer.to_pylist()
    ([True, False, True], [{'id': 3}])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    numbered = piece.append_column(_ROW, pa.array(range(len(piece)), pa.int64()))
    new = keys.select([*names]) if sequence is None else keys.select([*names]).append_column(_NEW, keys[sequence])
    both = numbered.join(new, [*names], join_type="inner")
    if sequence is not None:
        stored, given = both[sequence], both[_NEW]
        less = pc.less(given, stored)
        if pa.types.is_floating(stored.type):  # Spark takes NaN for the highest value, Arrow for no value
            less = pc.or_(less, pc.and_(pc.is_nan(stored), pc.invert(pc.is_nan(given))))
        older = pc.and_(pc.is_valid(stored), pc.fill_null(less, True))
        newer, both = both.filter(older).select([*names]), both.filter(pc.invert(older))
    else:
        newer = both.select([*names]).slice(0, 0)
    gone = pc.is_in(numbered[_ROW], value_set=both[_ROW].combine_chunks())
    return pc.invert(gone).combine_chunks(), newer
