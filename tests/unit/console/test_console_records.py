"""The records page without HTTP: its URL, search, transactions, and commands that are safe to paste."""

from __future__ import annotations

import json
import subprocess

import pytest

from ottla.clients.jsonlines import parse_record
from ottla.console.views.records import (
    KEEP_BYTES,
    BadQuery,
    Row,
    Search,
    produce_command,
    produce_line,
    read_query,
    row_of,
    shown_record,
    with_outcomes,
)
from ottla.console.views.values import Lens
from ottla.records import Headers, Record

HOSTILE = "it's $(touch /tmp/x) `id` \\ \" !! \n\r\t\x1b]0;x\x07\x7f \u202e é </script><b>"


def made(
    key: bytes | None = None,
    value: bytes | None = b"v",
    headers: Headers = (),
    offset: int = 0,
    size: int | None = None,
) -> Row:
    length = -1 if value is None else len(value)
    return Row(0, offset, 5, False, key, value, headers, length if size is None else size)


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"partition": "0,2"},
        {"from": "start", "limit": "100"},
        {"from": "offset", "offset": "17", "partition": "3"},
        {"from": "time", "time": "2026-01-31T08:00", "q": "a b&c", "in": "key,headers"},
        {"before": "0:17,2:5", "key": "hex", "value": "json", "nested": "1", "isolation": "read_committed"},
        {"at": "0:17"},
    ],
)
def test_a_url_says_everything(query: dict[str, str]) -> None:
    found = read_query(query, [query.get("in", "")])
    assert found.parameters() == query


def test_a_time_without_a_zone_is_utc() -> None:
    assert read_query({"from": "time", "time": "2023-11-14T22:13:20"}).since == 1_700_000_000_000


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"from": "middle"}, "from=middle is unknown: use end, start, offset, time"),
        ({"from": "offset", "offset": "-3"}, "offset: '-3' is not a whole number"),
        ({"partition": "x"}, "partition: 'x' is not a whole number"),
        ({"from": "time", "time": "soon"}, "time: 'soon' is not a time: write epoch milliseconds, or ISO 8601"),
        ({"from": "time"}, "time: give a time"),
        ({"at": "0:x"}, "at: 'x' is not a whole number"),
        ({"at": "0"}, "at: '' is not a whole number"),
        ({"value": "xml"}, "value=xml is unknown: use auto, json, registry, text, hex"),
        ({"isolation": "none"}, "isolation=none is unknown"),
        ({"q": "0xabc"}, "'0xabc' is not hex: write two digits for each byte"),
        ({"limit": "many"}, "limit: 'many' is not a whole number"),
    ],
)
def test_a_wrong_url_is_explained(query: dict[str, str], told: str) -> None:
    with pytest.raises(BadQuery) as error:
        read_query(query)
    assert told in str(error.value)


def test_the_number_of_rows_has_a_limit() -> None:
    assert read_query({"limit": "1000000"}).limit == 500


def test_search_looks_into_all_parts() -> None:
    record = Record(
        0, 0, b"Alice", b'{"city": "K\xc3\xb6ln", "bytes": "\x00\xff"}', (("Trace", b"xYz"), ("none", None))
    )

    def found(text: str, *places: str) -> bool:
        search = Search.of(read_query({"q": text}, places))
        assert search is not None
        return search.matches(record)

    assert found("ALICE")
    assert found("Köln")
    assert found("trace")
    assert found("xyz", "headers")
    assert found("0x00ff")
    assert not found("alice", "value", "headers")
    assert not found("bob")
    assert Search.of(read_query({})) is None


def test_a_large_value_is_kept_in_part() -> None:
    record = Record(3, 5, None, b"x" * (KEEP_BYTES + 1))
    row = row_of(record, partition=0, is_append_time=True, producer_id=-1, is_transactional=False)
    assert (len(row.value or b""), row.value_size, row.is_whole) == (KEEP_BYTES, KEEP_BYTES + 1, False)
    shown = shown_record(row, "t", key=Lens(), value=Lens())
    assert (shown.time_type, shown.value.size, shown.value.cut) == ("LogAppendTime", KEEP_BYTES + 1, True)
    assert shown.command == (
        "ottla consume t --partition 0 --offset 3 --max-messages 1 --json | ottla produce t --json"
    )


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (HOSTILE.encode(), HOSTILE.encode(), ((HOSTILE, HOSTILE.encode()), ("", None), ("e", b""))),
        (None, None, ()),
        (b"", b"", ()),
        (b"\xff\x00", bytes(range(256)), (("b", b"\xff"), ("not \udcff utf-8", b"1"))),
    ],
)
def test_the_command_writes_the_same_record(key: bytes | None, value: bytes | None, headers: Headers) -> None:
    line = produce_line(key, value, headers)
    assert line.isascii()
    assert line.isprintable()
    again = parse_record(line.encode())
    assert (again.key, again.value, again.headers) == (key, value, headers)
    command = produce_command(made(key, value, headers), "a topic's", ["-b", "h:1"])
    assert command.isprintable()
    # A shell passes exactly this line on: nothing of the record is carried out.
    first, _, rest = command.rpartition(" | ")
    assert rest == "ottla produce 'a topic'\"'\"'s' --json -b h:1"
    for shell in ("sh", "bash"):
        assert subprocess.run([shell, "-c", first], capture_output=True, check=True).stdout.decode() == line + "\n"


def test_a_large_record_is_copied_by_its_place() -> None:
    assert "ottla consume" in produce_command(made(value=b"x" * 100_001), "t")
    assert "x" * 50_000 in produce_command(made(value=b"x" * 50_000), "t")


def test_transactions_have_outcomes_if_their_markers_were_read() -> None:
    def row(offset: int, producer: int, marker: str | None = None) -> Row:
        return made(offset=offset)._replace(producer_id=producer, is_transactional=True, marker=marker)

    rows = [row(0, 1), row(1, 2), row(2, 1, "commit"), row(3, 1), row(4, 1, "abort"), row(5, 1)]
    assert [one.outcome for one in with_outcomes(rows)] == ["committed", None, None, "aborted", None, None]


def test_a_control_record_has_no_command() -> None:
    row = made(value=None)._replace(marker="commit", is_transactional=True)
    assert shown_record(row, "t", key=Lens(), value=Lens()).command is None


def test_headers_are_shown_with_their_names() -> None:
    shown = shown_record(made(headers=(("<b>\u202e", b"x"), ("n", None))), "t", key=Lens(), value=Lens())
    names = ["".join(piece.text for piece in name) for name, _ in shown.headers]
    assert (names, [value.kind for _, value in shown.headers]) == (["<b>U+202E", "n"], ["text", "null"])
    assert json.loads(produce_line(None, b"", (("n", None),)))["headers"] == [{"key": "n", "value": None}]
