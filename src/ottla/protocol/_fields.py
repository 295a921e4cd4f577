"""Shared by both versions of the codec: schema fields, decoded messages, output buffers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

#: Set by tests: reject a message with a field that no version of the API has.
STRICT = False

FIXED = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I",
    "float64": "d", "bool": "?", "uuid": "16s",
}  # fmt: skip
ZERO_UUID = bytes(16)
#: More tagged fields than any struct has: unknown ones are skipped one by one.
MAX_TAGS = 1000


class Field(NamedTuple):
    """A field of a message: see ``_schemas``."""

    name: str
    first: int
    last: int
    type: str
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    children: tuple[Any, ...] | None

    @property
    def fixed(self) -> str | None:
        return None if self.array or self.tag is not None else FIXED.get(self.type)


class Struct:
    """A decoded message, with the schema's names as attributes."""

    __slots__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no field {name!r}; it has {', '.join(self.__slots__)}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__slots__)})"


class Buffer(bytearray):
    """Bytes to send, and ``splices`` of (position, value): data to send between them without a copy."""

    __slots__ = ("splices",)

    def __init__(self, data: bytes = b"") -> None:
        super().__init__(data)
        self.splices: list[tuple[int, Any]] = []


Decoder: TypeAlias = Callable[[Any, int, int], tuple[Struct, int]]
Encoder: TypeAlias = Callable[[Buffer, dict[str, Any]], None]
Framer: TypeAlias = Callable[[bytes, dict[str, Any]], Buffer]


def present(fields: list[Field], version: int) -> list[Field]:
    """Return the fields of a version, in wire order."""
    return [field for field in fields if field.first <= version <= field.last]


def children_of(field: Field) -> list[Field]:
    """Return the fields of a nested struct."""
    return [Field(*child) for child in field.children or ()]


def empty_value(field: Field) -> Any:
    """Return the value of a field that the version of a decoded message does not have."""
    if field.default is not ...:
        return field.default
    if field.array:
        return ()
    if field.nullable or field.type in ("struct", "uuid", "records"):
        return None
    return {"string": "", "bytes": b"", "bool": False, "float64": 0.0}.get(field.type, 0)


@cache
def struct_class(name: str, names: tuple[str, ...]) -> type[Struct]:
    """Return the class of a message, the same for all versions."""
    title = "".join(part.capitalize() for part in name.split("_"))
    return type(title, (Struct,), {"__slots__": names})
