"""The events of the demo, and how it counts the records that a group read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ottla.cli.demo import screen
from ottla.cli.demo.events import Kind, Lines, Orders
from ottla.cli.demo.group import Coverage, coverage
from ottla.cli.demo.member import Ranges
from ottla.errors import OttlaError


def test_orders_are_skewed_partly_broken_and_partly_repeated() -> None:
    events = list(Orders(5_000))
    kinds = Counter(event.kind for event in events)
    assert kinds[Kind.GOOD] + kinds[Kind.BROKEN] == 5_000
    assert 20 < kinds[Kind.BROKEN] < 100
    assert 50 < kinds[Kind.REPEAT] < 200
    shops = Counter(event.key for event in events)
    assert shops.most_common(1)[0][1] > 2_000


def test_every_good_order_has_a_number_of_its_own_and_a_repeat_comes_after_it() -> None:
    seen: set[str] = set()
    for event in Orders(2_000):
        if event.kind is Kind.BROKEN:
            continue
        number = json.loads(event.value)["order_id"]
        assert (number in seen) == (event.kind is Kind.REPEAT)
        seen.add(number)


def test_a_csv_file_becomes_objects_with_types(tmp_path: Path) -> None:
    file = tmp_path / "my flights.csv"
    file.write_text("id;price;name;gone\n1;2.5;a;\n2;3;b;NA\nwrong;row\n")
    lines = Lines(file)
    assert lines.topic == "my-flights"
    assert lines.schema == "`id` BIGINT, `price` DOUBLE, `name` STRING, `gone` STRING"
    values = [event.value for event in lines if event.kind is Kind.OWN]
    assert values == [
        b'{"id": 1, "price": 2.5, "name": "a", "gone": null}',
        b'{"id": 2, "price": 3, "name": "b", "gone": null}',
        b"wrong;row",
    ]


def test_lines_of_json_are_sent_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"a": 1}\n\nbroken\n{"a": 2, "b": {"c": 3}}\n')
    lines = Lines(file)
    assert lines.schema == "`a` BIGINT, `b` STRING"
    sent = [(event.key, event.value) for event in lines if event.kind is Kind.OWN]
    assert sent == [(b"1", b'{"a": 1}'), (b"2", b"broken"), (b"3", b'{"a": 2, "b": {"c": 3}}')]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "x,y\n", "has no rows"),
        ("a.jsonl", "1,2\n3,4\n", "none of the first lines is a JSON object"),
        ("a.csv", "Id,id\n1,2\n", "two columns are named 'Id'"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(OttlaError, match=message):
        Lines(tmp_path / name)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(OttlaError, match=r"is not a file: name a CSV file"):
        Lines(tmp_path / "nowhere.csv")


def test_pieces_that_touch_are_one() -> None:
    ranges = Ranges()
    for first, after in ((0, 5), (5, 9), (12, 13)):
        ranges.add(3, first, after)
    assert ranges.found == {3: [[0, 9], [12, 13]]}


def test_what_a_killed_member_had_not_committed_is_read_again() -> None:
    killed, other = {0: [[0, 40]], 1: [[0, 7]]}, {0: [[30, 100]], 1: [[7, 50]]}
    assert coverage({0: 100, 1: 50}, [killed, other]) == Coverage(records=150, missed=0, again=10)
    assert coverage({0: 100, 1: 60}, [other]) == Coverage(records=160, missed=30 + 7 + 10, again=0)


def test_in_a_pipe_a_status_is_repeated_only_after_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(screen.time, "monotonic", lambda: now)
    shown = screen.Screen()
    for _ in range(20):
        shown.status("Spark is starting")
        now += 1.0
    shown.status("Spark runs")
    assert capsys.readouterr().out.split("\n") == [
        "  0.0 s    Spark is starting",
        " 15.0 s    Spark is starting",
        " 20.0 s    Spark runs",
        "",
    ]
