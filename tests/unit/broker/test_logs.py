"""Log lines for people and for log collectors."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from ottla.broker.logs import LogFormat, configure_logging, log_event

LOGGER = logging.getLogger("ottla.test")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root, ottla = logging.getLogger(), logging.getLogger("ottla")
    before = root.handlers[:], root.level, ottla.level
    yield
    root.handlers[:], level, ottla_level = before
    root.setLevel(level)
    ottla.setLevel(ottla_level)


def configured(format: LogFormat, level: str = "INFO") -> io.StringIO:  # noqa: A002
    stream = io.StringIO()
    configure_logging(format, level, stream=stream)
    return stream


def test_text_line() -> None:
    stream = configured("text")
    log_event(LOGGER, logging.INFO, "broker started", address="127.0.0.1:9092", topics=3, ready=True, rack=None)
    time, _, rest = stream.getvalue().partition(" ")
    assert rest == "INFO ottla.test: broker started address=127.0.0.1:9092 topics=3 ready=true rack=null\n"
    assert len(time) == len("2026-01-31T12:00:00.000Z")
    assert time.endswith("Z")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ("", '""'),
        ("a=b", '"a=b"'),
        ('a"b', '"a\\"b"'),
        ("line\nERROR forged", '"line\\nERROR forged"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("\ud800", '"\\ud800"'),
        ("été", "été"),
        (1.5, "1.5"),
    ],
)
def test_text_fields_stay_on_their_line_and_can_be_read_back(value: object, shown: str) -> None:
    stream = configured("text")
    log_event(LOGGER, logging.INFO, "seen", value=value)
    assert stream.getvalue().endswith(f": seen value={shown}\n")


def test_json_line() -> None:
    stream = configured("json")
    log_event(LOGGER, logging.WARNING, "frame refused", client="a\nb", size=7, ratio=float("inf"), level="x")
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "WARNING",
        "logger": "ottla.test",
        "event": "frame refused",
        "client": "a\nb",
        "size": 7,
        "ratio": "inf",
        "level_": "x",
    }


def test_json_of_any_value_and_of_plain_messages() -> None:
    stream = configured("json")
    log_event(LOGGER, logging.INFO, "seen", path=object)
    LOGGER.info("plain %s", "message")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["path"] == "<class 'object'>"
    assert second["event"] == "plain message"


@pytest.mark.parametrize("format", ["text", "json"])
def test_traceback(format: LogFormat) -> None:  # noqa: A002
    stream = configured(format)
    try:
        raise ValueError("why")
    except ValueError as error:
        log_event(LOGGER, logging.ERROR, "handler failed", exc_info=error)
    assert "Traceback" in stream.getvalue()
    assert "ValueError: why" in stream.getvalue()
    assert format == "text" or "ValueError: why" in json.loads(stream.getvalue())["traceback"]


def test_plain_message_cannot_forge_lines() -> None:
    stream = configured("text")
    LOGGER.info("name %s", "a\r\nERROR forged")
    assert stream.getvalue().count("\n") == 1


def test_level_is_for_ottla_and_others_only_warn() -> None:
    stream = configured("text", "DEBUG")
    log_event(LOGGER, logging.DEBUG, "ours")
    logging.getLogger("asyncio").info("not shown")
    logging.getLogger("asyncio").warning("shown")
    assert [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()] == ["ours", "shown"]


def test_configuring_again_replaces() -> None:
    first = configured("text")
    second = configured("text", "ERROR")
    log_event(LOGGER, logging.INFO, "quiet")
    log_event(LOGGER, logging.ERROR, "loud")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="text or json"):
        configure_logging("xml", "INFO")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="LOUD"):
        configure_logging("text", "LOUD")


def test_embedding_program_sees_fields_in_the_message(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ottla"):
        log_event(LOGGER, logging.INFO, "topic created", topic="orders", partitions=3)
    (record,) = caplog.records
    assert record.getMessage() == "topic created topic=orders partitions=3"
    assert record.filename == "test_logs.py"


def test_fields_are_not_made_when_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="ottla"):
        log_event(LOGGER, logging.INFO, "quiet", value=object())
    assert caplog.records == []
