"""Properties files are read as in Java, and errors name the line."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import Listener, parse_broker_properties, parse_properties
from ottla.errors import ConfigError

# The settings that Apache Kafka ships in its own server.properties.
STOCK = """
# The role of this server.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1 "}),
        ("a:1\nb 2\nc\t=\t3", {"a": "1", "b": "2", "c": "3"}),
        ("  # no\n! no\n\n  a=#yes", {"a": "#yes"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1,\\\n   2,\\\n   3", {"a": "1,2,3"}),
        ("a=1\\\n# part of the value", {"a": "1# part of the value"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=\\u00e9\\t\\n\\q", {"a": "é\t\nq"}),
        ("a\\=b\\ c=1", {"a=b c": "1"}),
        ("a", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a=1\na=2", {"a": "2"}),
        ("path=C:\\\\logs", {"path": "C:\\logs"}),
    ],
)
def test_notation(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [("a=1\n\n=2", "line 3: the name before the value is missing"), ("a=\\u12", "line 1: .*four hexadecimal digits")],
)
def test_unreadable_line_is_named(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_properties(text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert all(parse_properties(text))


@given(st.dictionaries(st.text("abc.", min_size=1), st.text("xyz0:/,= ").map(str.lstrip)))
def test_plain_values_come_back(values: dict[str, str]) -> None:
    values = {name: value for name, value in values.items() if value[:1] not in ("=", ":")}
    assert parse_properties("".join(f"{name}={value}\n" for name, value in values.items())) == values


def test_kafkas_own_file_starts_this_broker() -> None:
    config = parse_broker_properties(STOCK)
    assert config.id == 1
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert "num.io.threads" in config.ignored


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\nnum.partitions=0\n", r"my\.properties, line 2: Invalid value '0' for configuration num\.partitions"),
        ("a.b=1\n", r"my\.properties, line 1: Unknown broker configuration name: a\.b"),
        ("log.dirs=a,\\\n b\nnum.partition=1", r"line 3: .*Did you mean num\.partitions\?"),
        ("=1", r"my\.properties, line 1: the name before the value is missing"),
    ],
)
def test_wrong_setting_is_named_with_its_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_broker_properties(text, source="my.properties")


def test_overrides_count_more_than_the_file() -> None:
    config = parse_broker_properties("num.partitions=1\nlog.dirs=/a", overrides={"num_partitions": 5})
    assert (config.num_partitions, config.data_dirs) == (5, ("/a",))
