"""``ottla produce`` and ``ottla consume``: every byte survives, in every format."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.cli.cli_results import Ottla

Start = Callable[..., "subprocess.Popen[bytes]"]
ALL = ("--from-beginning", "--exit-at-end")
HOUR_AGO = int(time.time()) * 1000 - 3_600_000


def read_json(ottla: Ottla, topic: str, *args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ottla("consume", topic, "--json", *(args or ALL)).lines]


def test_lines_become_values(ottla: Ottla, topic: str) -> None:
    produced = ottla("produce", topic, "--partition", "1", stdin=b"one\n\ntwo words\nthree")
    assert (produced.code, produced.out, produced.err) == (0, b"", "")
    assert ottla("consume", topic, *ALL).out == b"one\n\ntwo words\nthree\n"


def test_any_bytes_survive(ottla: Ottla, topic: str) -> None:
    value = bytes(byte for byte in range(256) if byte != 10)
    ottla("produce", topic, stdin=value + b"\n")
    assert ottla("consume", topic, *ALL).out == value + b"\n"
    (record,) = read_json(ottla, topic)
    assert base64.b64decode(record["value_base64"]) == value
    assert "value" not in record


def test_keys_headers_and_null_in_lines(ottla: Ottla, topic: str) -> None:
    line = b"trace:abc,empty:\talice=NULL\n"
    assert ottla("produce", topic, "--headers", "-k", "=", "--null-marker", "NULL", stdin=line).code == 0
    (record,) = read_json(ottla, topic)
    assert (record["key"], record["value"]) == ("alice", None)
    assert record["headers"] == [{"key": "trace", "value": "abc"}, {"key": "empty", "value": ""}]
    printed = ottla("consume", topic, *ALL, "--headers", "-k", "=", "--null-marker", "NULL")
    assert printed.out == line
    assert ottla("consume", topic, *ALL, "--keys").out == b"alice\tnull\n"


def test_the_same_header_for_every_record(ottla: Ottla, topic: str) -> None:
    ottla("produce", topic, "--header", "source=test", "--header", "n=1", stdin=b"a\nb\n")
    expected = [{"key": "source", "value": "test"}, {"key": "n", "value": "1"}]
    assert [record["headers"] for record in read_json(ottla, topic)] == [expected, expected]


def test_separators_may_be_written_as_escapes(ottla: Ottla, topic: str) -> None:
    ottla("produce", topic, "-k", r"\t", stdin=b"k\tv\n")
    assert ottla("consume", topic, *ALL, "-k", r"\x01").out == b"k\x01v\n"


def test_json_lines_carry_everything(ottla: Ottla, topic: str) -> None:
    lines = [
        {"key": "k", "value": "v", "partition": 2, "timestamp": HOUR_AGO, "headers": {"h": "x", "n": None}},
        {"key": None, "value": {"nested": [1, "ü"]}, "partition": 2},
        {
            "key_base64": "/w==",
            "value_base64": "gIE=",
            "headers": [{"key": "b", "value_base64": "/g=="}],
            "partition": 2,
        },
        {"value": None, "key": 7, "partition": 2},
    ]
    data = "\n\n".join(json.dumps(line) for line in lines).encode()
    assert ottla("produce", topic, "--json", stdin=data).code == 0
    records = read_json(ottla, topic)
    assert [record["offset"] for record in records] == [0, 1, 2, 3]
    assert all(record["partition"] == 2 and record["topic"] == topic for record in records)
    assert records[0]["timestamp"] == HOUR_AGO
    assert records[0]["headers"] == [{"key": "h", "value": "x"}, {"key": "n", "value": None}]
    assert (records[1]["key"], records[1]["value"]) == (None, '{"nested":[1,"ü"]}')
    assert (records[2]["key_base64"], records[2]["value_base64"]) == ("/w==", "gIE=")
    assert records[2]["headers"] == [{"key": "b", "value_base64": "/g=="}]
    assert (records[3]["key"], records[3]["value"]) == ("7", None)
    assert abs(records[3]["timestamp"] - time.time() * 1000) < 60_000


def test_what_consume_prints_as_json_produce_can_read(ottla: Ottla, topic: str) -> None:
    ottla("produce", topic, "-k", ":", "--header", "h=1", stdin=b"a:1\nb:\xff\xfe\nc:3\n")
    printed = ottla("consume", topic, *ALL, "--json").out
    before = read_json(ottla, topic)
    assert ottla("produce", topic, "--json", stdin=printed).code == 0
    after = read_json(ottla, topic)
    assert len(after) == 6

    def bare(records: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps({**record, "offset": 0}) for record in records)

    assert bare(after) == sorted(bare(before) * 2)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_compression_and_acks(ottla: Ottla, topic: str, compression: str, acks: str) -> None:
    lines = b"".join(b"%d %s\n" % (number, b"x" * 100) for number in range(200))
    args = ("--compression", compression, "--acks", acks, "--partition", "0")
    assert ottla("produce", topic, *args, stdin=lines).code == 0
    # Without acknowledgements the records may arrive a moment after the command.
    assert ottla("consume", topic, "--from-beginning", "-n", "200", "--timeout-ms", "10000").out == lines


def test_the_same_key_goes_to_the_same_partition_as_with_other_clients(ottla: Ottla, topic: str) -> None:
    ottla("produce", topic, "-k", ":", stdin=b"21:a\nfoobar:b\nabc:c\nfoobar:d\n")
    where = {record["value"]: record["partition"] for record in read_json(ottla, topic)}
    # Java's murmur2 of these keys, without the sign, modulo three partitions.
    hashes = {"a": -973932308, "b": -790332482, "c": 479470107}
    expected = {value: (hashed & 0x7FFFFFFF) % 3 for value, hashed in hashes.items()}
    assert where == {**expected, "d": expected["b"]}


def test_a_large_input_arrives_whole(ottla: Ottla, topic: str) -> None:
    lines = [b"%d:%s" % (number, b"x" * (number % 700)) for number in range(20_000)]
    assert ottla("produce", topic, "-k", ":", stdin=b"\n".join(lines)).code == 0
    printed = ottla("consume", topic, *ALL, "-k", ":").out.splitlines()
    assert sorted(printed) == sorted(lines)


# Where to start and when to stop.


@pytest.fixture
def numbers(ottla: Ottla, topic: str) -> str:
    """Ten records in partition 0, a second apart."""
    records = [{"value": str(n), "partition": 0, "timestamp": HOUR_AGO + n * 1000} for n in range(10)]
    data = "\n".join(map(json.dumps, records)).encode()
    assert ottla("produce", topic, "--json", stdin=data).code == 0
    return topic


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--from-beginning", "-n", "3"], "012"),
        (["--partition", "0", "--offset", "7", "--exit-at-end"], "789"),
        (["--partition", "0", "--offset", "10", "--exit-at-end"], ""),
        (["--offset", "-4", "--exit-at-end"], "6789"),
        (["--offset", "-400", "--exit-at-end"], "0123456789"),
        (["--timestamp", str(HOUR_AGO + 7_500), "--exit-at-end"], "89"),
        (["--timestamp", datetime.fromtimestamp(HOUR_AGO / 1000 + 5, UTC).isoformat(), "--exit-at-end"], "56789"),
        (["--timestamp", str(HOUR_AGO * 2), "--exit-at-end"], ""),
        (["--from-beginning", "--partition", "1", "--partition", "2", "--exit-at-end"], ""),
        (["--from-beginning", "--timeout-ms", "2000"], "0123456789"),
        (["--timeout-ms", "100"], ""),
        (["--exit-at-end"], ""),
    ],
)
def test_where_to_start_and_when_to_stop(ottla: Ottla, numbers: str, args: list[str], expected: str) -> None:
    result = ottla("consume", numbers, *args)
    assert (result.code, "".join(result.lines), result.err) == (0, expected, "")


def test_it_follows_until_ctrl_c(start: Start, ottla: Ottla, topic: str) -> None:
    process = start("consume", topic, "--from-beginning")
    assert process.stdout is not None
    for word in (b"first", b"second"):
        ottla("produce", topic, stdin=word)
        assert process.stdout.readline() == word + b"\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_a_reader_that_leaves_ends_it_quietly_even_when_no_record_comes(start: Start, numbers: str) -> None:
    process = start("consume", numbers, "--from-beginning")
    assert process.stdout is not None
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_line_from_a_slow_writer_is_sent_at_once(start: Start, ottla: Ottla, topic: str) -> None:
    process = start("produce", topic)
    assert process.stdin is not None
    process.stdin.write(b"now\n")
    process.stdin.flush()
    read = ottla("consume", topic, "--from-beginning", "-n", "1", "--timeout-ms", "20000")
    assert read.out == b"now\n"
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(timeout=20) == 0


def test_a_topic_that_does_not_exist_is_created_by_the_broker(ottla: Ottla, topic: str) -> None:
    assert ottla("produce", f"{topic}-auto", stdin=b"x\n").code == 0
    assert ottla("consume", f"{topic}-auto", *ALL).out == b"x\n"


# Mistakes.


@pytest.mark.parametrize(
    ("args", "stdin", "code", "message"),
    [
        (["produce", "{topic}", "--partition", "3"], b"x", 1, "has no partition 3: it has 0 to 2"),
        (["produce", "{topic}", "-k", ":"], b"a:1\nb", 1, r"line 2: .*no key.*':'.*\(1 record written before it\)"),
        (["produce", "{topic}", "--headers"], b"x\n", 1, "line 1: no tab after the headers"),
        (["produce", "{topic}", "--headers"], b"x\tv\n", 1, "line 1: header 'x' has no colon"),
        (["produce", "{topic}", "--json"], b'{"value": 1}\n{"value": }', 1, "line 2: not valid JSON: .* at column 11"),
        (["produce", "{topic}", "--json"], b"[1]", 1, "line 1: not a JSON object"),
        (["produce", "{topic}", "--json"], b'{"vlaue": 1}', 1, r"unknown field 'vlaue'; did you mean 'value'\?"),
        (["produce", "{topic}", "--json"], b'{"key": "k"}', 1, "the field 'value' is missing"),
        (["produce", "{topic}", "--json"], b'{"value": "\xff"}', 1, "not UTF-8 at byte 12: .*value_base64"),
        (["produce", "{topic}", "--json"], b'{"value_base64": "?"}', 1, "'value_base64' is not valid base64"),
        (["produce", "{topic}", "--json"], b'{"value": 1, "value_base64": ""}', 1, "both 'value' and 'value_base64'"),
        (["produce", "{topic}", "--json"], b'{"value": 1, "partition": 9}', 1, "line 1: .* it has 0 to 2"),
        (["produce", "{topic}", "--json"], b'{"value": 1, "partition": "a"}', 1, "'partition' is not a whole number"),
        (["produce", "{topic}", "--json"], b'{"value": 1, "timestamp": 1.5}', 1, "'timestamp' is not a whole number"),
        (["produce", "{topic}", "--json"], b'{"value": 1, "timestamp": 1%s}' % (b"0" * 30), 1, "number from 0 to"),
        (["produce", "{topic}", "--json"], b'{"value": 1%s}' % (b"0" * 9_999), 1, "line 1: not valid JSON"),
        (["produce", "{topic}", "--json"], b'{"value": 1, "headers": 5}', 1, "'headers' is neither"),
        (["produce", "{topic}", "--json"], b'{"value": 1, "headers": [1]}', 1, "a header is not an object"),
        (["produce", "{topic}", "--json"], b'{"value": "\\ud800"}', 1, "surrogate"),
        (["produce", "{topic}", "--json"], b"[" * 100_000, 1, "nested too deeply"),
        (["produce", "{topic}", "--json", "-k", ":"], b"", 2, "remove --key-separator, --headers and --null-marker"),
        (["produce", "{topic}", "--acks", "2"], b"", 2, "'2'.* one of 0, 1, all"),
        (["produce", "{topic}", "--compression", "lzma"], b"", 2, "'lzma'"),
        (["produce", "{topic}", "-k", ""], b"", 2, "the separator is empty"),
        (["produce", "{topic}", "--header", "x"], b"", 2, "'x' is not a header: write NAME=VALUE"),
        (["produce", "{topic}"], b"x" * 2_000_000, 1, r"a record of 2,000,\d+ bytes is larger .* max\.message\.bytes"),
        (["produce", "no such topic"], b"x", 1, "[Tt]opic"),
        (["consume", "{topic}x"], b"", 1, r"topic '{topic}x' does not exist; did you mean '{topic}'\?"),
        (["consume", "{topic}", "--partition", "7"], b"", 1, "has no partition 7: it has 0 to 2"),
        (["consume", "{topic}", "--offset", "5"], b"", 2, "needs --partition: the topic has 3 partitions"),
        (["consume", "{topic}", "--offset", "5", "--partition", "0"], b"", 1, "offset 5 is out of range: .* 0 to 0"),
        (["consume", "{topic}", "--offset", "x"], b"", 2, "'x' is not a whole number"),
        (["consume", "{topic}", "--timestamp", "noon"], b"", 2, "'noon' is not a time: write .*ISO 8601"),
        (["consume", "{topic}", "--from-beginning", "--offset", "1"], b"", 2, "not allowed with"),
        (["consume", "{topic}", "-n", "0"], b"", 2, "'0' is not a whole number >= 1"),
        (["consume", "{topic}", "--json", "--keys"], b"", 2, "--json includes key and headers"),
        (["consume"], b"", 2, "required: TOPIC"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(
    ottla: Ottla, topic: str, args: list[str], stdin: bytes, code: int, message: str
) -> None:
    result = ottla(*(arg.replace("{topic}", topic) for arg in args), stdin=stdin)
    assert (result.code, result.out) == (code, b"")
    assert result.err.count("\n") == 1, result.err
    assert re.search(message.replace("{topic}", topic), result.err), result.err


def test_what_stands_before_a_bad_line_is_written(ottla: Ottla, topic: str) -> None:
    result = ottla("produce", topic, "--json", stdin=b'{"value": "a"}\n{"value": "b"}\noops\n{"value": "c"}\n')
    assert "line 3" in result.err
    assert "2 records written before it" in result.err
    assert sorted(ottla("consume", topic, *ALL).lines) == ["a", "b"]
