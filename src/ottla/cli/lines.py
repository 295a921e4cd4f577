"""Parse and format records as lines of text: ``name:value,name:value<TAB>key<SEPARATOR>value``.

Headers and key are optional. This is the format of Kafka's console tools. Bytes are not escaped: values with a newline
and keys with the separator need JSON lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.clients.jsonlines import BadLine, NewRecord
from ottla.records import Headers, Record
from ottla.records.consumed import ConsumerRecord

HEADERS_END = b"\t"


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The parts of a line: headers, key, and the text that means null."""

    key_separator: bytes | None = None
    headers: bool = False
    null_marker: bytes | None = None

    def parse(self, line: bytes) -> NewRecord:
        """Parse a line without its newline; raises BadLine."""
        headers: Headers = ()
        key: bytes | None = None
        if self.headers:
            head, found, line = line.partition(HEADERS_END)
            if not found:
                raise BadLine("no tab after the headers")
            headers = tuple(self._parse_header(part) for part in head.split(b",") if part)
        if self.key_separator is not None:
            key, found, line = line.partition(self.key_separator)
            if not found:
                separator = self.key_separator.decode("utf-8", "backslashreplace")
                raise BadLine(f"no key: the line does not contain the separator {separator!r}")
        return NewRecord(self._null(key), self._null(line), headers)

    def format(self, record: Record | ConsumerRecord) -> bytes:
        """Format a record as a line with its newline."""
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
            raise BadLine(f"header {part.decode('utf-8', 'backslashreplace')!r} has no colon: write name:value")
        return name.decode("utf-8", "surrogateescape"), self._null(value)

    def _null(self, data: bytes | None) -> bytes | None:
        return None if data is not None and data == self.null_marker else data

    def _text(self, data: bytes | None) -> bytes:
        return data if data is not None else (self.null_marker or b"")
