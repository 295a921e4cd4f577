"""Which sinks share a read: before the first run, by the checkpoint, and after changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipelines import (
    ConsoleSink,
    DeadLetters,
    Dedupe,
    Expect,
    FileSink,
    Join,
    LakeSink,
    Pipeline,
    Python,
    Source,
    Sql,
    Table,
    TopicSink,
    Window,
    load,
)
from ottla.spark.pipelines.checkpoints import planned_offsets
from ottla.spark.pipelines.checks.pipeline import check
from ottla.spark.pipelines.compile import groups_of
from ottla.spark.pipelines.shared.layout import LayoutError, Readers, State, check_alone, chosen, expected
from ottla.spark.pipelines.status import flows_of, status_of
from ottla.types import TopicPartition

SOURCE = Source(name="orders", topics=["orders"], schema="id INT, at TIMESTAMP", group_id="readers")
A = FileSink(name="a", input="orders", path="a")
LETTERS = "dead-letters.orders"


def made(tmp_path: Path, *sinks: Any, steps: Any = (), sources: Any = (SOURCE,), **more: Any) -> Pipeline:
    pipeline = Pipeline(
        name="p",
        checkpoint="state",
        bootstrap_servers="localhost:9092",
        sources=list(sources),
        tables=[Table(name="people", path=str(tmp_path))],
        steps=list(steps),
        sinks=list(sinks),
        dead_letters=DeadLetters(topic="dead"),
        **more,
    )
    object.__setattr__(pipeline, "directory", tmp_path)
    return pipeline


def test_what_the_declaration_lets_expect(tmp_path: Path) -> None:
    def shares(*sinks: Any, **more: Any) -> Any:
        return expected(made(tmp_path, *sinks, **more))

    assert shares(A) == {"orders": ["a", LETTERS]}
    assert shares(A, read="separate") == {}
    assert shares(A, ConsoleSink(name="c", input="orders", mode="update")) == {"orders": ["a", LETTERS]}
    table = LakeSink(name="d", format="delta", path="d", keys=["id"])
    assert shares(table) == {"orders": ["d", LETTERS]}
    assert shares(replace(table, mode="overwrite")) == {}
    by_row = [
        Join(name="named", join="people", on=["id"]),
        Python(name="loud", python="x:y"),
        Sql(name="large", sql="SELECT * FROM loud"),
    ]
    assert shares(A, FileSink(name="b", path="b"), steps=by_row) == {"orders": ["a", "b", LETTERS]}
    ruled = {"steps": by_row, "expects": [Expect(name="cheap", input="large", that="id > 0")]}
    assert shares(A, FileSink(name="b", path="b"), **ruled) == {"orders": ["a", "b", LETTERS]}
    assert shares(A, FileSink(name="b", path="b", max_delay="1 minute"), **ruled) == {"orders": ["a", LETTERS]}
    unique = Dedupe(name="unique", keys=["id"], within="1 hour", input="orders")
    window = Window(name="minutes", input="orders", window="1 minute", aggregate={"n": "count(*)"})
    after = [TopicSink(name=name, input="unique", topic=name) for name in ("b", "c")]
    windowed = FileSink(name="w", input="minutes", path="w")
    assert shares(A, *after, windowed, steps=[unique, window]) == {"orders": ["b", "c", LETTERS]}, (
        "most need the dedupe"
    )
    others = Source(name="others", topics=["others"], schema="id INT")
    both = Sql(name="both", sql="SELECT id FROM orders UNION ALL SELECT id FROM others")
    assert shares(FileSink(name="b", path="b"), steps=[both], sources=[SOURCE, others]) == {}


def test_who_shares_is_fixed_by_the_first_start() -> None:
    assert chosen(["a", "b"], [], None) == ["a", "b"]
    assert chosen(["a", "b", "c"], ["a"], None) == ["b", "c"], "one with an older checkpoint keeps it"
    assert chosen(["a", "b"], ["a"], None) == [], "nothing to share"
    first = Readers(("a", "b"))
    assert chosen(["a", "b", "c"], [], first) == ["a", "b"], "a new one would miss the earlier records"
    later = first.now(["a"], 7)
    assert later == Readers(("a",), {"b": 7})
    assert Readers.parse(later.text(), "state") == later
    assert later.without("b") == Readers(("a",))
    check_alone("c", "orders", later, "reset it")
    with pytest.raises(
        LayoutError, match=r"b was removed from the shared read of source orders after batch 7.* reset it"
    ):
        check_alone("b", "orders", later, "reset it")
    with pytest.raises(LayoutError, match=r"a is part of the shared read .* Undo that. Or, .*, reset it"):
        check_alone("a", "orders", later, "reset it")
    for damaged in ("", "[]", '{"readers": ["a"]}', '{"readers": ["a"], "left": {"b": "x"}}'):
        with pytest.raises(LayoutError, match=r"state/readers.json is damaged: restore it from a backup"):
            Readers.parse(damaged, "state")


def test_the_checkpoint_says_who_shares(tmp_path: Path) -> None:
    pipeline = made(tmp_path, A, FileSink(name="b", input="orders", path="b"), FileSink(name="c", path="c"))
    shared = tmp_path / "state" / "shared" / "orders"
    assert {one.name: one.shares for one in flows_of(pipeline)} == dict.fromkeys(["a", "b", "c", LETTERS], "orders")
    shared.mkdir(parents=True)
    (shared / "readers.json").write_text(Readers(("a", LETTERS)).text())
    (tmp_path / "state" / "b").mkdir()
    (tmp_path / "state" / "b" / "metadata").write_text("{}")
    state = State.of(pipeline)
    assert (state.apart, state.source_of("a"), state.source_of("b")) == (frozenset({"b"}), "orders", None)
    places = {one.name: (one.shares, Path(one.directory).relative_to(tmp_path)) for one in flows_of(pipeline)}
    assert places == {
        "a": ("orders", Path("state/shared/orders")),
        "b": (None, Path("state/b")),
        "c": (None, Path("state/c")),
        LETTERS: ("orders", Path("state/shared/orders")),
    }


def test_groups_of_queries_beside_a_shared_read(tmp_path: Path) -> None:
    pipeline = made(tmp_path, A, FileSink(name="b", path="b"))
    assert groups_of(pipeline, "a") == {"orders": "readers"}
    assert groups_of(pipeline, "b") == {"orders": "readers.b"}
    assert groups_of(pipeline, "a", shared=["orders"]) == {"orders": "readers.a"}


def test_the_status_of_a_late_sink(tmp_path: Path) -> None:
    pipeline = made(tmp_path, A, TopicSink(name="b", topic="b", max_delay="1 minute"))
    shared = tmp_path / "state" / "shared" / "orders"
    for log in ("offsets", "commits"):
        (shared / log).mkdir(parents=True)
        for batch in range(4):
            offsets = json.dumps({"orders": {"0": 10 * (batch + 1)}})
            (shared / log / str(batch)).write_text(f'v1\n{{"batchTimestampMs": 5}}\n{offsets}')
    (shared / "readers.json").write_text(Readers(("a", "b", LETTERS)).text())
    for batch in (2, 3):
        (shared / "late" / "b" / str(batch)).mkdir(parents=True)
        (shared / "late" / "b" / str(batch) / "_SUCCESS").touch()
    (shared / "late" / "b" / "4").mkdir()  # not complete, so the batch will be repeated
    flows = {one.name: one for one in status_of(pipeline, ask=False).flows}
    first, second = flows["a"].checkpoint, flows["b"].checkpoint
    assert first is not None
    assert second is not None
    assert (flows["a"].waiting, first.finished, flows["b"].waiting, second.finished) == (0, 3, 2, 1)
    assert second.offsets == {TopicPartition("orders", 0): 20} == planned_offsets((shared / "offsets/1").read_text())


def test_what_max_delay_needs(tmp_path: Path) -> None:
    def told(*sinks: Any, **more: Any) -> list[str]:
        pipeline = made(tmp_path, *sinks, **more)
        return [one.message for one in check(pipeline)]

    assert told(TopicSink(name="b", topic="b", max_delay="1 minute")) == []
    assert told(TopicSink(name="b", topic="b", max_delay="soon"))[0].startswith("max_delay must be ")
    useless = "max_delay has no effect: this sink reads by itself, so no other sink waits for it. Remove max_delay"
    assert told(TopicSink(name="b", topic="b", max_delay="1 minute"), read="separate") == [useless]
    assert told(ConsoleSink(name="b", mode="update", max_delay="1 minute")) == [useless]


@pytest.mark.parametrize("name", ["shared", "shared.orders", "dead-letters", "dead-letters.orders"])
def test_reserved_names(tmp_path: Path, name: str) -> None:
    (problem,) = check(made(tmp_path, FileSink(name=name, path="x")))
    assert problem.message == f"the name {name.partition('.')[0]} is reserved: rename the sink"


def test_read_in_toml(tmp_path: Path) -> None:
    text = 'name = "p"\ncheckpoint = "s"\nbootstrap_servers = "x:1"\nREAD\n[[source]]\nname = "o"\ntopics = ["o"]\n'
    text += 'format = "text"\n[[sink]]\nname = "c"\nformat = "console"\n'
    (tmp_path / "p.toml").write_text(text.replace("READ", 'read = "separate"'))
    assert load(tmp_path / "p.toml").read == "separate"
    (tmp_path / "p.toml").write_text(text.replace("READ", ""))
    assert load(tmp_path / "p.toml").read == "shared"
