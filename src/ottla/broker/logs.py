"""The broker's log lines: events with fields, as text or as JSON.

    2026-01-31T12:00:00.000Z INFO ottla.broker: broker started address=127.0.0.1:9092 topics=3
    {"time": "2026-01-31T12:00:00.000Z", "level": "INFO", "logger": "ottla.broker", "event": ...}

`configure_logging` is for the command line only. A program that embeds a broker configures logging itself, and sees the
fields in the message.
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
    """The message of a log record: a constant name, and the fields of this occurrence."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        """Format as text, for any logging setup."""
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
    """Log an event with its fields. Costs almost nothing if the level is disabled."""
    if logger.isEnabledFor(level):
        logger.log(level, Event(event, fields), exc_info=exc_info, stacklevel=2)


def configure_logging(format: LogFormat, level: str | int, *, stream: TextIO | None = None) -> None:  # noqa: A002
    """Send the log lines of this process to a stream (default stderr), instead of the previous handlers.

    `level` applies to ottla. Other loggers show warnings and errors.
    """
    if format not in ("text", "json"):
        raise ValueError(f"the log format must be text or json, not {format!r}")
    logging.getLogger("ottla").setLevel(level)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)


class TextFormatter(logging.Formatter):
    """One line per event with fields as key=value, followed by a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if not isinstance(record.msg, Event):
            # Messages of other libraries may contain line breaks, which a client could use to forge lines.
            message = message.replace("\r", "\\r").replace("\n", "\\n")
        line = f"{_time(record)} {record.levelname} {record.name}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line. An underscore is added to fields with a reserved name."""

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
    """Return a value that JSON can hold: it has no infinity or NaN."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = str(value)
    plain = text.isprintable() and not any(mark in text for mark in (" ", '"', "="))
    return text if text and plain else json.dumps(text)
