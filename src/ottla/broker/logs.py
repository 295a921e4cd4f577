"""The broker's own log lines: events with fields, as text or as JSON.

    2026-01-31T12:00:00.000Z INFO ottla.broker: broker started address=127.0.0.1:9092 topics=3
    {"time": "2026-01-31T12:00:00.000Z", "level": "INFO", "logger": "ottla.broker", "event": ...}

`log_event` is for everybody. `configure_logging` is for the command line alone: a program that embeds a
broker decides itself what becomes of log lines, and sees the fields in the message.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]

_RESERVED = ("time", "level", "logger", "event", "traceback")


class Event:
    """The message of a log record: a name that is always the same, and the fields of this one time."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        """As text, which any logging set-up of an application shows."""
        return " ".join([self.name, *(f"{name}={_text(value)}" for name, value in self.fields.items())])


def log_event(
    logger: logging.Logger,
    level: int,
    event: str,
    /,
    *,
    exc_info: BaseException | None = None,
    **fields: object,
) -> None:
    """Logs an event with its fields. Costs next to nothing if the level is not shown."""
    if logger.isEnabledFor(level):
        logger.log(level, Event(event, fields), exc_info=exc_info, stacklevel=2)


def configure_logging(format: LogFormat, level: str | int, *, stream: TextIO | None = None) -> None:  # noqa: A002
    """Sends the log lines of this process to a stream (stderr), in place of where they went before.

    `level` counts for ottla; of everything else warnings and errors are shown.
    """
    if format not in ("text", "json"):
        raise ValueError(f"a log format is text or json, not {format!r}")
    logging.getLogger("ottla").setLevel(level)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)


class TextFormatter(logging.Formatter):
    """One line an event, fields as key=value; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if not isinstance(record.msg, Event):
            # Other people's messages may carry line ends, with which a client could forge lines.
            message = message.replace("\r", "\\r").replace("\n", "\\n")
        line = f"{_time(record)} {record.levelname} {record.name}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line. A field with a name that every line has gets an underscore after it."""

    def format(self, record: logging.LogRecord) -> str:
        event = record.msg if isinstance(record.msg, Event) else Event(record.getMessage(), {})
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "event": event.name,
        }
        for name, value in event.fields.items():
            line[f"{name}_" if name in _RESERVED else name] = _json(value)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(value: object) -> object:
    """JSON has no word for infinity and the like."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = str(value)
    plain = text.isprintable() and not any(mark in text for mark in (" ", '"', "="))
    return text if text and plain else json.dumps(text)
