"""Records as lines of text, both ways: ``name:value,name:value<TAB>key<SEPARATOR>value``.

Headers and key are there only if asked for. It is the notation of Kafka's own console tools; bytes go
through as they are, so a value with a newline, or a key with the separator, needs JSON lines instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.cli.jsonlines import BadLine, NewRecord
from ottla.records import Headers, Record
from ottla.records.consumed import ConsumerRecord

HEADERS_END = b"\t"


@dataclass(frozen=True, slots=True)
class LineFormat:
    """What a line has: headers, key, and the text that stands for null."""

    key_separator: bytes | None = None
    headers: bool = False
    null_marker: bytes | None = None

    def parse(self, line: bytes) -> NewRecord:
        """The record of a line (without its newline); BadLine says what is missing."""
        headers: Headers = ()
        key: bytes | None = None
        if self.headers:
            head, found, line = line.partition(HEADERS_END)
            if not found:
                raise BadLine("there is no tab after the headers")
            headers = tuple(self._parse_header(part) for part in head.split(b",") if part)
        if self.key_separator is not None:
            key, found, line = line.partition(self.key_separator)
            if not found:
                separator = self.key_separator.decode("utf-8", "backslashreplace")
                raise BadLine(f"there is no key: the separator {separator!r} is not in the line")
        return NewRecord(self._null(key), self._null(line), headers)

    def format(self, record: Record | ConsumerRecord) -> bytes:
        """The line of a record, with its newline."""
        parts = []
        if self.headers:
            pairs = (name.encode("utf-8", "surrogateescape") + b":" + self._text(v) for name, v in record.headers)
            parts += [b",".join(pairs), HEADERS_END]
        if self.key_separator is not None:
            parts += [self._text(record.key), self.key_separator]
        return b"".join([*parts, self._text(record.value), b"\n"])

    def _parse_header(self, part: bytes) -> tuple[str, bytes | None]:
        name, found, value = part.partition(b":")
        if not found:
            raise BadLine(f"the header {part.decode('utf-8', 'backslashreplace')!r} has no colon: write name:value")
        return name.decode("utf-8", "surrogateescape"), self._null(value)

    def _null(self, data: bytes | None) -> bytes | None:
        return None if data is not None and data == self.null_marker else data

    def _text(self, data: bytes | None) -> bytes:
        return data if data is not None else (self.null_marker or b"")
