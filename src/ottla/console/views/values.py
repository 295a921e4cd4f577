"""How the bytes of a key, value or header are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.clients.registry.frames import HEADER_BYTES
from ottla.console.views.pieces import Piece, hex_dump, json_pieces, shortened, visible

AUTO, JSON, REGISTRY, TEXT, HEX = "auto", "json", "registry", "text", "hex"
FORMATS = {
    AUTO: "automatic",
    JSON: "JSON",
    REGISTRY: "Avro and others (registry)",
    TEXT: "text",
    HEX: "hex",
}
NEEDS_REGISTRY = "start the console with --registry URL to read such values"


@dataclass(frozen=True, slots=True)
class Room:
    """How much of a value is shown."""

    characters: int = 2_000
    lines: int = 40

    @property
    def bytes(self) -> int:
        """More bytes than this are not looked at."""
        return self.characters * 4


LIST, WHOLE = Room(), Room(1_000_000, 100_000)
KEY, HEADER = Room(400, 8), Room(200, 4)


class Decoded(NamedTuple):
    """A value that was read with its schema."""

    kind: str
    """Avro, JSON Schema or Protobuf."""
    text: str
    """As JSON."""
    schema_id: int


class Undecoded(NamedTuple):
    """Why a value was not read with a schema."""

    problem: str


Decode = Callable[[bytes], Decoded | Undecoded]


@dataclass(frozen=True, slots=True)
class Shown:
    """A value for a page."""

    kind: str
    """null, empty, JSON, Avro, JSON Schema, Protobuf, text or hex."""
    pieces: list[Piece] = field(default_factory=list)
    size: int = 0
    cut: bool = False
    note: str = ""


class Lens(NamedTuple):
    """The chosen way to look at values."""

    format: str = AUTO
    nested: bool = False
    decode: Decode | None = None
    """Reads values with a schema registry; None without one."""


def shown(data: bytes | None, lens: Lens = Lens(), room: Room = LIST, size: int | None = None) -> Shown:  # noqa: B008
    """Show bytes. `size` is their real number if `data` is only the beginning.

    >>> shown(None).kind, shown(b"").kind, shown(b'{"a":1}').kind, shown(b"abc").kind, shown(b"\\xff\\x00").kind
    ('null', 'empty', 'JSON', 'text', 'hex')
    """
    if data is None:
        return Shown("null")
    if not data:
        return Shown("empty")
    size = len(data) if size is None else size
    if lens.format == HEX:
        return _hex(data, room, size)
    if lens.format == REGISTRY or (lens.format == AUTO and _is_framed(data)):
        return _with_schema(data, lens, room, size)
    if lens.format == TEXT:
        return _text(data, room, size)
    return _json(data, lens, room, size)


def _is_framed(data: bytes) -> bool:
    """Whether bytes look like a value with a schema id: a zero byte, and an id that registries give."""
    return len(data) >= HEADER_BYTES and data[0] == 0 and 0 < int.from_bytes(data[1:HEADER_BYTES]) < 1 << 24


def _with_schema(data: bytes, lens: Lens, room: Room, size: int) -> Shown:
    plain = Lens(AUTO, lens.nested)
    if lens.decode is None:
        number = int.from_bytes(data[1:HEADER_BYTES])
        what = f"it looks like a value with schema id {number}: " if _is_framed(data) else ""
        return _noted(_json(data, plain, room, size), f"{what}{NEEDS_REGISTRY}")
    if len(data) < size:
        return _noted(_json(data, plain, room, size), "too large to be read with its schema here")
    found = lens.decode(data)
    if isinstance(found, Undecoded):
        return _noted(_json(data, plain, room, size), found.problem)
    pieces = json_pieces(found.text, nested=lens.nested) or list(visible(found.text))
    kept, cut = shortened(pieces, room.characters, room.lines)
    return Shown(found.kind, kept, size, cut, f"schema id {found.schema_id}")


def _noted(one: Shown, note: str) -> Shown:
    return Shown(one.kind, one.pieces, one.size, one.cut, note)


def _json(data: bytes, lens: Lens, room: Room, size: int) -> Shown:
    """As JSON, or as text, or as hex: the first that fits."""
    text = _utf8(data, size)
    looks = text is not None and (lens.format == JSON or text.lstrip()[:1] in ("{", "["))
    pieces = json_pieces(text, nested=lens.nested) if looks and text is not None and len(data) == size else None
    if pieces is not None:
        kept, cut = shortened(pieces, room.characters, room.lines)
        return Shown("JSON", kept, size, cut)
    found = _hex(data, room, size) if text is None or _is_binary(text) else _text(data, room, size)
    return _noted(found, "not JSON") if lens.format == JSON and len(data) == size else found


def _utf8(data: bytes, size: int) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        # The beginning of a value may end within a character.
        return data[: error.start].decode() if len(data) < size and error.start >= len(data) - 3 else None


def _is_binary(text: str) -> bool:
    start = text[:1_000]
    return sum(character < " " and character not in "\n\r\t" for character in start) * 10 > len(start)


def _text(data: bytes, room: Room, size: int) -> Shown:
    start = data[: room.bytes]
    text = start.decode("utf-8", "surrogateescape")
    kept, cut = shortened(visible(text), room.characters, room.lines)
    return Shown("text", kept, size, cut or len(start) < size)


def _hex(data: bytes, room: Room, size: int) -> Shown:
    start = data[: min(room.lines * 16, room.characters // 4)]
    return Shown("hex", [Piece(hex_dump(start))], size, len(start) < size)


def as_json(value: object) -> str:
    """A decoded value as JSON text; bytes are shown as hex."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    return f"0x{value.hex()}" if isinstance(value, bytes | bytearray) else str(value)
