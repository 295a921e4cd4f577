"""Records as text and as JSON: any bytes survive a round trip."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli import stdin
from ottla.cli.lines import LineFormat
from ottla.cli.options import separator
from ottla.clients.jsonlines import BadLine, format_record, parse_record
from ottla.records import Record
from ottla.types import TopicPartition

DATA = st.none() | st.binary(max_size=30) | st.text(max_size=20).map(str.encode)
NAME = st.binary(max_size=10).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 2**63 - 1),
    timestamp=st.integers(0, 2**62),
    key=DATA,
    value=DATA,
    headers=st.lists(st.tuples(NAME, DATA), max_size=4).map(tuple),
)


@given(RECORDS, st.integers(0, 2**31 - 1))
def test_json_lines_lose_nothing(record: Record, partition: int) -> None:
    line = format_record(TopicPartition("orders", partition), record)
    assert line.count(b"\n") == 1
    again = parse_record(line)
    assert (again.key, again.value, again.headers) == (record.key, record.value, record.headers)
    assert (again.timestamp, again.partition) == (record.timestamp, partition)


@given(st.binary(max_size=60))
def test_any_line_is_a_record_or_a_clear_refusal(line: bytes) -> None:
    with contextlib.suppress(BadLine):
        parse_record(line)


PLAIN = st.none() | st.binary(max_size=20).filter(lambda data: not set(data) & set(b"\n\t,:=") and data != b"NULL")
PLAIN_NAME = st.text("abcäöü", min_size=1, max_size=5)


@given(PLAIN, PLAIN, st.lists(st.tuples(PLAIN_NAME, PLAIN), max_size=3).map(tuple))
def test_lines_with_key_and_headers_lose_nothing(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    notation = LineFormat(key_separator=b"=", headers=True, null_marker=b"NULL")
    line = notation.format(Record(0, 0, key, value, headers))
    again = notation.parse(line.removesuffix(b"\n"))
    assert (again.key, again.value, again.headers) == (key, value, headers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":", b":"),
        ("::", b"::"),
        (r"\t", b"\t"),
        (r"a\\t", b"a\\t"),
        (r"\x00\0", b"\0\0"),
        ("ü", "ü".encode()),
        (r"\d", rb"\d"),
    ],
)
def test_separators(text: str, expected: bytes) -> None:
    assert separator(text) == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=30))
def test_lines_do_not_depend_on_how_they_are_cut(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    reader, writer = os.pipe()

    def write() -> None:
        for piece in pieces:
            os.write(writer, piece)
        os.close(writer)

    async def read() -> list[bytes]:
        return [line async for chunk in stdin.lines(reader) for line in chunk]

    thread = threading.Thread(target=write)
    thread.start()
    try:
        found = asyncio.run(read())
    finally:
        thread.join()
        os.close(reader)
    assert found == data.removesuffix(b"\n").split(b"\n") if data else found == []


def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "MAX_LINE_BYTES", 1000)
    reader, writer = os.pipe()
    os.write(writer, b"fine\n" + b"x" * 2000)
    os.close(writer)

    async def read() -> None:
        async for _ in stdin.lines(reader):
            pass

    with pytest.raises(BadLine, match="line 2 is longer than 1,000 bytes"):
        asyncio.run(read())
    os.close(reader)
