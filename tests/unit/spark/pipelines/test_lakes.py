"""Delta and Iceberg tables as sinks, without Spark: what tasks and the driver do, beside a model."""

from __future__ import annotations

import datetime
import json
import os
import random
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("deltalake", reason="needs pip install 'ottla[delta]'")
pytest.importorskip("pyiceberg", reason="needs pip install 'ottla[iceberg]'")

from ottla.cli.main import main  # noqa: E402
from ottla.spark.pipelines.backfill.plan import Range  # noqa: E402
from ottla.spark.pipelines.lakes.columns import conformed, missing_columns  # noqa: E402
from ottla.spark.pipelines.lakes.contract import Bounds, Change, Conflict, Lake, LakeError  # noqa: E402
from ottla.spark.pipelines.lakes.delta import DeltaLake  # noqa: E402
from ottla.spark.pipelines.lakes.iceberg import IcebergLake  # noqa: E402
from ottla.spark.pipelines.lakes.merging import bounds_of, bounds_of_ranges, remove, rewrite, split  # noqa: E402
from ottla.spark.pipelines.lakes.optimizing import optimize  # noqa: E402
from ottla.spark.pipelines.lakes.secrets import Secrets  # noqa: E402
from ottla.spark.pipelines.lakes.statistics import statistics_of  # noqa: E402

SCHEMA = pa.schema({"id": pa.int64(), "day": pa.string(), "ts": pa.int64(), "name": pa.string()})
Opened = Callable[[], Lake]


@pytest.fixture(params=["delta", "iceberg"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens the same table each time, as another process would."""
    if request.param == "delta":
        return lambda: DeltaLake(str(tmp_path / "table"), {})
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/tables"}
    return lambda: IcebergLake("shop.orders", catalog, {})


def rows_of(lake: Lake) -> list[dict[str, Any]]:
    """All rows, read file by file as tasks do."""
    files = lake.files()
    return [row for file in lake.candidates({}) for batch in files.read(file) for row in batch.to_pylist()]


def append(lake: Lake, batch: int, *rows: dict[str, Any], query: str = "q") -> None:
    added = lake.files().write(conformed(pa.Table.from_pylist(list(rows), SCHEMA), lake.files().schema))
    lake.commit(Change(query, batch, added))


def upsert(lake: Lake, batch: int, rows: list[dict[str, Any]], deleted: set[int]) -> int:
    """What the driver and its tasks do; returns how many files were written again."""
    files = lake.files()
    keys = pa.Table.from_pylist(rows, SCHEMA).select(["id", "ts"])
    done = [rewrite(files, one, keys, ["id"], "ts") for one in lake.candidates(bounds_of(keys, ["id"]))]
    older = {row["id"] for one in done if one.newer is not None for row in one.newer.to_pylist()}
    kept = [row for row in rows if row["id"] not in older | deleted]
    changed = [one for one in done if one.added is not None]
    added = [file for one in changed for file in one.added or ()]
    if kept:
        added += files.write(conformed(pa.Table.from_pylist(kept, SCHEMA), files.schema))
    lake.commit(Change("q", batch, added, [one.file for one in changed]))
    return len(changed)


def row(number: int, day: str | None = "a", ts: int | None = 0, name: str = "x") -> dict[str, Any]:
    return {"id": number, "day": day, "ts": ts, "name": name}


def test_a_batch_is_one_commit_that_has_its_number(opened: Opened) -> None:
    lake = opened()
    assert lake.columns() is None
    lake.create(SCHEMA, ["day"])
    assert lake.partitions == ["day"]
    assert lake.last_batch("q") == -1
    append(lake, 0, row(1, "a"), row(2, "x/ y%"), row(3, None))
    other = opened()
    assert (other.last_batch("q"), other.last_batch("other")) == (0, -1)
    assert sorted(rows_of(other), key=str) == sorted([row(1, "a"), row(2, "x/ y%"), row(3, None)], key=str)
    # The same query in another process, which has not seen the commit: its rows must not be added.
    late = opened()
    append(lake, 1, row(4))
    with pytest.raises(Conflict):
        append(late, 1, row(4))
    late.refresh()
    assert late.last_batch("q") == 1
    assert len(rows_of(opened())) == 4
    # Another query is only told to try again.
    behind = opened()
    append(lake, 2, row(5))
    with pytest.raises(Conflict):
        append(behind, 0, row(6), query="other")
    behind.refresh()
    append(behind, 0, row(6), query="other")
    assert (behind.last_batch("q"), behind.last_batch("other"), len(rows_of(behind))) == (2, 0, 6)


def test_all_rows_can_be_replaced(opened: Opened) -> None:
    lake = opened()
    lake.create(SCHEMA, [])
    append(lake, 0, row(1), row(2))
    added = lake.files().write(pa.Table.from_pylist([row(3)], SCHEMA))
    lake.commit(Change("q", 1, added, replaces_all=True))
    assert rows_of(opened()) == [row(3)]
    lake.commit(Change("q", 2, [], replaces_all=True))
    assert rows_of(opened()) == []
    assert opened().last_batch("q") == 2


def test_random_upserts_leave_what_a_model_has(opened: Opened) -> None:
    lake, chance = opened(), random.Random(7)
    lake.create(SCHEMA, ["day"])
    model: dict[int, dict[str, Any]] = {}
    for batch in range(6):
        numbers = chance.sample(range(40), 15)
        rows = [row(one, f"d{one % 3}", chance.choice([None, *range(9)]), f"v{batch}") for one in numbers]
        deleted = {one for one in numbers if chance.random() < 0.2}
        upsert(lake, batch, rows, deleted)
        for one in rows:
            known = model.get(one["id"])
            if known is not None and known["ts"] is not None and (one["ts"] is None or one["ts"] < known["ts"]):
                continue
            if one["id"] in deleted:
                model.pop(one["id"], None)
            else:
                model[one["id"]] = one
        assert sorted(rows_of(lake), key=lambda one: one["id"]) == [model[key] for key in sorted(model)]
    assert opened().last_batch("q") == 5


def test_files_without_the_keys_stay_as_they_are(opened: Opened) -> None:
    lake = opened()
    lake.create(SCHEMA, [])
    append(lake, 0, *(row(one) for one in range(10)))
    append(lake, 1, *(row(one) for one in range(10, 20)))
    assert len(lake.candidates({"id": Bounds(12, 500)})) == 1
    assert len(lake.candidates({"id": Bounds(3, 15, (3, 15))})) == 2
    assert upsert(lake, 2, [row(12, ts=5, name="new"), row(99, ts=5)], set()) == 1
    # A newer row stays, and so does its file.
    assert upsert(lake, 3, [row(12, ts=4, name="late")], set()) == 0
    assert {one["name"] for one in rows_of(lake) if one["id"] == 12} == {"new"}
    # Somebody else writes between reading and committing: the files that were read may not be all.
    keys = pa.table({"id": [1], "ts": [9]})
    done = rewrite(lake.files(), lake.candidates(bounds_of(keys, ["id"]))[0], keys, ["id"], "ts")
    append(opened(), 0, row(1, name="other"), query="other")
    with pytest.raises(Conflict):
        lake.commit(Change("q", 4, list(done.added or ()), [done.file]))
    lake.files().discard(done.added or ())
    lake.refresh()
    assert upsert(lake, 4, [row(1, ts=9, name="mine")], set()) == 2
    assert [one["name"] for one in rows_of(lake) if one["id"] == 1] == ["mine"]


def test_columns_are_added(opened: Opened) -> None:
    lake = opened()
    lake.create(SCHEMA, [])
    append(lake, 0, row(1))
    more = pa.schema([*SCHEMA, pa.field("note", pa.list_(pa.string())), pa.field("price", pa.decimal128(9, 2))])
    columns = lake.columns()
    assert columns is not None
    lake.add_columns(missing_columns(more, columns, lake.what))
    with_note = {**row(2), "note": ["a", None], "price": Decimal("1.25")}
    files = lake.files()
    lake.commit(Change("q", 1, files.write(conformed(pa.Table.from_pylist([with_note], more), files.schema))))
    assert sorted(rows_of(opened()), key=lambda one: one["id"]) == [{**row(1), "note": None, "price": None}, with_note]
    assert upsert(lake, 2, [row(1, ts=5, name="new")], set()) == 1
    assert [one["name"] for one in rows_of(lake) if one["id"] == 1] == ["new"]
    lake.set_property("ottla.writer.pipeline.sink", "me")
    assert opened().properties()["ottla.writer.pipeline.sink"] == "me"


def test_names_that_iceberg_reserves_have_an_underscore_at_the_end(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/tables"}
    schema = pa.schema({"id": pa.int64(), "_partition": pa.int32(), "_deleted": pa.bool_()})
    lake = IcebergLake("shop.orders", catalog, {})
    lake.create(schema, ["_partition"])
    assert lake.table.schema().column_names == ["id", "_partition_", "_deleted_"]
    assert (lake.columns(), lake.partitions) == (schema, ["_partition"])
    lake.add_columns([pa.field("_File", pa.string())])
    given = [{"id": one, "_partition": one, "_deleted": False, "_File": "a"} for one in range(3)]
    lake.commit(Change("q", 0, lake.files().write(pa.Table.from_pylist(given, lake.columns()))))
    assert sorted(rows_of(lake), key=lambda one: one["id"]) == given
    assert len(lake.candidates({"_partition": Bounds(1, 1)})) == 1
    assert set(lake.table.scan().to_arrow().column_names) == {"id", "_partition_", "_deleted_", "_File_"}
    # A table that was made with the name itself keeps it.
    old = lake.catalog.create_table("shop.old", schema)
    opened = IcebergLake("shop.old", catalog, {})
    rows = [{"id": 1, "_partition": 7, "_deleted": True}]
    opened.commit(Change("q", 0, opened.files().write(pa.Table.from_pylist(rows, schema))))
    assert (opened.columns(), rows_of(opened)) == (schema, rows)
    assert opened.candidates({"_partition": Bounds(1, 6)}) == []
    assert old.refresh().scan().to_arrow().to_pylist() == rows


def test_types_that_do_not_fit_are_named() -> None:
    table = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.timestamp("us", "UTC"))])
    given = pa.schema({"id": pa.int32(), "at": pa.string(), "new": pa.string()})
    with pytest.raises(LakeError, match=r"at is STRING here and TIMESTAMP in the table. Convert them in a step"):
        missing_columns(given, table, "the table")
    with pytest.raises(LakeError, match="needs a value for id, which the input does not have"):
        missing_columns(given.remove(0).remove(0), table, "the table")
    with pytest.raises(LakeError, match=r'column id of the table is NOT NULL, .* require = \["id IS NOT NULL"\]'):
        conformed(pa.table({"ID": [1, None]}), table)
    decimals = pa.schema({"id": pa.decimal128(12, 3)})
    assert missing_columns(pa.schema({"id": pa.decimal128(9, 2)}), decimals, "t") == []
    with pytest.raises(LakeError, match=r"id is DECIMAL\(9, 4\) here and DECIMAL\(12, 3\) in the table"):
        missing_columns(pa.schema({"id": pa.decimal128(9, 4)}), decimals, "t")
    # Arrow would make such a field NULL.
    shop, other = (pa.schema({"shop": pa.struct([(name, pa.int64())])}) for name in ("City", "city"))
    with pytest.raises(LakeError, match="shop is struct<City: int64> here and struct<city: int64> in the table"):
        missing_columns(shop, other, "t")


def test_statistics_are_left_out_where_they_could_mislead() -> None:
    at = datetime.datetime(2026, 11, 1, 1, 2, 3, 4, tzinfo=datetime.UTC)
    odd = {"text": ["x" * 99], "nan": [float("nan")], "flag": [True], "d": [[1]]}
    found = statistics_of(pa.table({"at": [at], "day": [at.date()], **odd}))
    assert found["minValues"] == {"at": "2026-11-01T01:02:03.000004Z", "day": "2026-11-01"}
    first = statistics_of(pa.table({"at": [datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)]}))
    assert first["minValues"] == {"at": "0001-01-01T00:00:00.000000Z"}
    assert found["nullCount"] == {"at": 0, "day": 0, "text": 0, "nan": 0, "flag": 0}


def test_errors_hide_secrets(tmp_path: Path) -> None:
    options = {
        "aws_endpoint": "http://127.0.0.1:1",
        "allow_http": "true",
        "aws_region": "x",
        "aws_access_key_id": "KEYKEY",
        "aws_secret_access_key": "HUSHHUSH",
        "max_retries": "0",
    }
    with pytest.raises(LakeError, match=r"^cannot open the Delta table s3://shop/orders: .*Connection refused") as told:
        DeltaLake("s3://shop/orders", options)
    assert "\n" not in str(told.value)
    assert "\x1b" not in str(told.value)
    assert "HUSH" not in str(told.value)
    assert str(told.value).endswith("Check storage, and that the object store can be reached, then run this again")
    with pytest.raises(
        LakeError, match=r"catalog of the Iceberg table shop.orders: .*unable to open.* directory of uri"
    ):
        IcebergLake("shop.orders", {"type": "sql", "uri": f"sqlite:///{tmp_path}/no/such/dir/c.db"}, {})
    hidden = Secrets({"token": "HUSHHUSH"}).hidden("HUSHHUSH at postgresql://me:word@host/db")
    assert hidden == "*** at postgresql://me:***@host/db"
    settings = {"header.Authorization": "Bearer HUSH", "adls.connection-string": "AccountKey=HUSH"}
    assert Secrets(settings).hidden("Bearer HUSH AccountKey=HUSH") == "*** ***"


def test_a_catalog_without_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"catalog of the Iceberg table shop.orders: Set uri in catalog, or name"):
        IcebergLake("shop.orders", {"type": "sql"}, {})
    lake = IcebergLake("shop.orders", {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"}, {})
    with pytest.raises(LakeError, match=r"^cannot create the Iceberg table shop.orders: Set warehouse in catalog"):
        lake.create(pa.schema({"id": pa.int64()}), [])


def test_a_damaged_log_has_no_backtrace(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("rubbish")
    with pytest.raises(LakeError, match=r"cannot open the Delta table .*unexpected") as told:
        DeltaLake(str(tmp_path), {})
    assert "1: " not in str(told.value)


def test_nan_is_the_newest_sequence_as_in_spark() -> None:
    nan = float("nan")
    stored = pa.table({"id": [1, 2, 3], "v": [nan, nan, 5.0]})
    batch = pa.table({"id": [1, 2, 3], "v": [7.0, nan, nan]})
    stays, newer = split(stored, batch, ["id"], "v")
    assert (stays.to_pylist(), newer.to_pylist()) == ([True, False, False], [{"id": 1}])


def test_features_of_other_engines_are_refused(tmp_path: Path) -> None:
    from deltalake import DeltaTable, Field, Schema

    table = DeltaTable.create(str(tmp_path / "t"), SCHEMA)
    table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(LakeError, match=r"uses .*onstraints.*, which this sink does not support"):
        DeltaLake(str(tmp_path / "t"), {}).columns()
    # Tables with an old protocol do not list their features.
    made = Field("next", "long", metadata={"delta.generationExpression": "id + 1"})
    DeltaTable.create(str(tmp_path / "made"), Schema([Field("id", "long"), made]))
    with pytest.raises(LakeError, match=r"uses delta.generationExpression, which this sink does not support"):
        DeltaLake(str(tmp_path / "made"), {}).columns()
    lake = DeltaLake(str(tmp_path / "log"), {}, {"delta.appendOnly": "true"})
    lake.create(SCHEMA, [])
    append(lake, 0, row(1))
    with pytest.raises(LakeError, match=r"has delta.appendOnly = true.* use mode append without keys"):
        upsert(lake, 1, [row(1)], set())


def test_optimize_joins_small_files_and_deletes_old_ones(opened: Opened, tmp_path: Path) -> None:
    lake: Any = opened()
    lake.create(SCHEMA, ["day"])
    for batch in range(4):
        append(lake, batch, *(row(one, f"d{one % 2}") for one in range(batch * 10, batch * 10 + 10)))
    before = sorted(map(str, rows_of(lake)))
    left = lake.files().write(pa.Table.from_pylist([row(99)], SCHEMA))  # of a batch that was killed
    old = time.time() - 100 * 3600
    for path in [*tmp_path.rglob("*.parquet"), *tmp_path.rglob("*.avro"), *tmp_path.rglob("*.metadata.json")]:
        os.utime(path, (old, old))
    behind = opened()
    done = optimize(opened(), vacuum_hours=1)
    assert (done.files_before, done.files_after) == (8, 2)
    assert done.deleted
    assert {Path(one.path if hasattr(one, "path") else one.file_path).name for one in left}.isdisjoint(
        path.name for path in tmp_path.rglob("*.parquet")
    )
    lake.refresh()
    assert sorted(map(str, rows_of(lake))) == before
    assert lake.last_batch("q") == 3
    # A writer that has not seen it tries again.
    with pytest.raises(Conflict):
        append(behind, 4, row(100))
    behind.refresh()
    append(behind, 4, row(100))
    assert len(rows_of(opened())) == 41
    assert (done := optimize(opened())).deleted is None
    with pytest.raises(LakeError, match="at least 1 hour"):
        optimize(opened(), vacuum_hours=0)


def test_keys_are_found_after_compaction(opened: Opened) -> None:
    """The statistics of other writers are less exact than ours: milliseconds, and decimals as doubles."""
    schema = pa.schema({"at": pa.timestamp("us", "UTC"), "number": pa.decimal128(38, 0), "cents": pa.decimal128(9, 2)})
    at = datetime.datetime(2026, 11, 1, 1, 2, 3, 123_456, tzinfo=datetime.UTC)
    given = {"at": at, "number": Decimal(10**37 + 1), "cents": Decimal("0.30")}
    lake: Any = opened()
    lake.create(schema, [])
    for batch in range(2):
        lake.commit(Change("q", batch, lake.files().write(pa.Table.from_pylist([given], schema))))
    assert optimize(lake).files_after == 1
    for name, value in given.items():
        assert len(lake.candidates({name: Bounds(value, value)})) == 1, name
        assert len(lake.candidates({name: Bounds(value, value, (value,))})) == 1, name


def test_a_compaction_without_an_answer_keeps_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/tables"}
    lake = IcebergLake("shop.orders", catalog, {})
    lake.create(SCHEMA, [])
    for batch in range(2):
        append(lake, batch, row(batch))
    commit = lake.rewrite

    def lost(*files: Any) -> None:
        commit(*files)
        raise LakeError("cannot commit: the connection was closed")

    monkeypatch.setattr(lake, "rewrite", lost)
    with pytest.raises(LakeError, match="was closed"):
        optimize(lake)
    assert sorted(one["id"] for one in rows_of(IcebergLake("shop.orders", catalog, {}))) == [0, 1]


def test_vacuum_leaves_files_of_other_tables_alone(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/tables"}
    shared = {"write.data.path": f"file://{tmp_path}/shared"}
    first, second = (IcebergLake(f"shop.{name}", catalog, {}, shared) for name in ("first", "second"))
    for lake in (first, second):
        lake.create(SCHEMA, [])
        append(lake, 0, row(1))
    old = time.time() - 100 * 3600
    for path in tmp_path.rglob("*.parquet"):
        os.utime(path, (old, old))
    assert optimize(first, vacuum_hours=1).deleted == 0
    assert rows_of(second) == [row(1)]


def test_delta_has_no_empty_text_in_partitions(tmp_path: Path) -> None:
    lake = DeltaLake(str(tmp_path / "table"), {})
    lake.create(SCHEMA, ["day"])
    with pytest.raises(LakeError, match=r"column day of the Delta .* use NULLIF\(day, ''\) in a step"):
        append(lake, 0, row(1, ""))
    append(lake, 0, row(1, None), row(2, "x" * 300), row(3, "a b/c%20=ü"))
    optimize(lake)
    upsert(lake, 1, [row(number, "d", name="new") for number in (1, 2, 3)], set())
    assert sorted((one["id"], one["day"], one["name"]) for one in rows_of(lake)) == [
        (number, "d", "new") for number in (1, 2, 3)
    ]


def test_timestamps_of_spark_are_rewritten_exactly(tmp_path: Path) -> None:
    """Spark writes INT96, which Arrow reads as nanoseconds: they end in 2262."""
    import pyarrow.parquet as pq

    schema = pa.schema({"id": pa.int64(), "until": pa.timestamp("us", "UTC")})
    lake = DeltaLake(str(tmp_path / "table"), {})
    lake.create(schema, [])
    until = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)
    rows = pa.Table.from_pylist([{"id": 1, "until": until}, {"id": 2, "until": until}], schema)
    (written,) = lake.files().write(rows)
    pq.write_table(rows, tmp_path / "table" / written.path, use_deprecated_int96_timestamps=True)
    lake.commit(Change("q", 0, [written]))
    done = rewrite(lake.files(), lake.candidates({})[0], pa.table({"id": [1]}), ["id"], None)
    lake.commit(Change("q", 1, list(done.added or ()), [done.file]))
    assert rows_of(lake) == [{"id": 2, "until": until}]


def test_the_command_optimizes_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = DeltaLake(str(tmp_path / "orders"), {})
    table.create(SCHEMA, [])
    append(table, 0, row(1))
    append(table, 1, row(2))
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/tables"}
    IcebergLake("shop.orders", catalog, {}).create(SCHEMA, [])
    assert main(["table", "optimize", str(tmp_path / "orders"), "--vacuum"]) == 0
    assert capsys.readouterr().out == f"Delta table {tmp_path}/orders: 2 → 1 file, 0 files deleted\n"
    options = [word for name, value in catalog.items() for word in ("--catalog", f"{name}={value}")]
    assert main(["table", "optimize", "shop.orders", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["files_after"] == 0
    assert main(["table", "optimize", "shop.orders"]) == 1
    assert "there is no Delta table shop.orders. For an Iceberg table, add --catalog" in capsys.readouterr().err
    file = tmp_path / "p.toml"
    file.write_text(
        'name = "p"\ncheckpoint = "s"\nbootstrap_servers = "x:1"\n'
        '[[source]]\nname = "o"\ntopics = ["o"]\nformat = "text"\n'
        '[[sink]]\nname = "t"\nformat = "delta"\npath = "orders"\n'
    )
    assert main(["table", "optimize", str(file)]) == 0
    assert capsys.readouterr().out == f"Delta table {tmp_path}/orders: 1 → 1 file\n"


def test_a_renamed_table_keeps_its_files(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/tables"}
    first = IcebergLake("shop.orders", catalog, {})
    first.create(SCHEMA, [])
    append(first, 0, row(1))
    first.rename("shop.before")
    second = IcebergLake("shop.orders", catalog, {})
    assert second.columns() is None
    second.create(SCHEMA, [])
    append(second, 0, row(2))
    old = time.time() - 100 * 3600
    for path in tmp_path.rglob("*.parquet"):
        os.utime(path, (old, old))
    optimize(second, vacuum_hours=1)
    assert rows_of(IcebergLake("shop.before", catalog, {})) == [row(1)]


def test_the_rows_of_some_records_are_removed(opened: Opened) -> None:
    lake = opened()
    schema = pa.schema([("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64())])
    lake.create(schema, [])
    files = lake.files()
    places = [("a", 0, one) for one in range(6)] + [("a", 1, 2), ("b", 0, 2), (None, None, None)]
    for number, part in enumerate((places[:3], places[3:])):
        rows = pa.Table.from_pylist([dict(zip(schema.names, one, strict=True)) for one in part], schema)
        lake.commit(Change("q", number, files.write(conformed(rows, files.schema))))
    ranges = [Range("a", 0, 1, 4), Range("b", 0, 0, 3)]
    lake.refresh()
    done = [remove(lake.files(), one, ranges) for one in lake.candidates(bounds_of_ranges(ranges))]
    changed = [one for one in done if one.added is not None]
    lake.commit(Change("q", 2, [file for one in changed for file in one.added or ()], [one.file for one in changed]))
    left = sorted((tuple(one.values()) for one in rows_of(lake)), key=str)
    assert left == sorted([("a", 0, 0), ("a", 0, 4), ("a", 0, 5), ("a", 1, 2), (None, None, None)], key=str)
