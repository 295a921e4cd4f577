"""Compile schema fields into Python functions that read or write one version of a message.

`_walker` does the same in C, with the same results and the same types of errors. Interpreting the schema for each
message would cost ten times as much. In the generated code, one ``struct`` call reads neighbouring fields of fixed
size, and nested structs are separate functions. ``tests/unit/protocol`` compares all versions of all APIs with kio.
"""

from __future__ import annotations

import struct
from itertools import groupby
from typing import Any
from uuid import UUID

from ottla.protocol import _fields
from ottla.protocol._fields import (
    FIXED,
    MAX_TAGS,
    ZERO_UUID,
    Buffer,
    Decoder,
    Encoder,
    Field,
    Framer,
    Struct,
    children_of,
    empty_value,
    present,
    struct_class,
)

_INT32 = struct.Struct(">i")


class _Source:
    """The source of a generated module, with the objects that it refers to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = dict(_RUNTIME)
        self.items: str | None = None
        """The name of a list with the number of items that are left; None without a limit."""

    def bind(self, prefix: str, value: Any) -> str:
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def add(self, text: str, indent: int = 1) -> None:
        self.lines += ["    " * indent + line for line in text.splitlines()]

    def compile(self, name: str) -> dict[str, Any]:
        exec(compile("\n".join(self.lines), f"<{name}>", "exec"), self.names)
        return self.names


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────


def compile_decoder(
    name: str, fields: list[Field], version: int, flexible: bool, max_items: int | None = None
) -> Decoder:
    """Return a function (buffer, position, end) -> (struct, position).

    With ``max_items``, messages with more array items and tagged fields in total are rejected.
    """
    source = _Source()
    if max_items is not None:
        source.items = source.bind("items", [0])
    function = _decode_struct(source, name, fields, version, flexible, max_items)
    decoder: Decoder = source.compile(f"decode {name} v{version}")[function]
    return decoder


def _decode_struct(
    source: _Source, name: str, fields: list[Field], version: int, flexible: bool, max_items: int | None = None
) -> str:
    here = present(fields, version)
    nested = {
        field.name: _decode_struct(source, f"{name}_{field.name}", children_of(field), version, flexible)
        for field in here
        if field.type == "struct"
    }
    names = tuple(dict.fromkeys(field.name for field in fields))
    function = f"decode_{name}"
    source.add(f"def {function}(buf, pos, end):", 0)
    if max_items is not None:
        source.add(f"{source.items}[0] = {max_items}")
    plain = [field for field in here if field.tag is None]
    for format_, run in groupby(plain, key=lambda field: bool(field.fixed)):
        if format_:
            _decode_fixed(source, list(run))
        else:
            for field in run:
                _decode_variable(source, field, flexible, nested.get(field.name), 1)
    if flexible:
        _decode_tags(source, [field for field in here if field.tag is not None], nested)
    _make_struct(source, struct_class(name, names), fields, {field.name for field in here})
    return function


def _make_struct(source: _Source, cls: type[Struct], fields: list[Field], have: set[str]) -> None:
    source.add(f"m = new({source.bind('cls', cls)})")
    for name in cls.__slots__:
        value = f"f_{name}"
        if name not in have:
            value = source.bind("default", next(empty_value(field) for field in fields if field.name == name))
        source.add(f"m.{name} = {value}")
    source.add("return m, pos")


def _decode_fixed(source: _Source, run: list[Field]) -> None:
    layout = struct.Struct(">" + "".join(field.fixed or "" for field in run))
    unpack = source.bind("unpack", layout.unpack_from)
    source.add(f"{''.join(f'f_{field.name}, ' for field in run)}= {unpack}(buf, pos); pos += {layout.size}")
    for field in run:
        if field.type == "uuid":
            source.add(f"f_{field.name} = None if f_{field.name} == ZERO_UUID else UUID(bytes=f_{field.name})")


def _decode_variable(source: _Source, field: Field, flexible: bool, nested: str | None, indent: int) -> None:
    if field.array:
        _decode_array(source, field, flexible, nested, indent)
    elif field.type == "struct":
        _decode_nested(source, field, nested, indent)
    elif field.type in FIXED:  # only a tagged field
        unpack = source.bind("unpack", struct.Struct(">" + FIXED[field.type]).unpack_from)
        size = struct.calcsize(">" + FIXED[field.type])
        source.add(f"(f_{field.name},) = {unpack}(buf, pos); pos += {size}", indent)
        if field.type == "uuid":
            source.add(f"f_{field.name} = None if f_{field.name} == ZERO_UUID else UUID(bytes=f_{field.name})", indent)
    else:
        _decode_bytes(source, f"f_{field.name}", field.type, flexible, field.nullable, indent)


def _decode_nested(source: _Source, field: Field, nested: str | None, indent: int) -> None:
    if not field.nullable:
        source.add(f"f_{field.name}, pos = {nested}(buf, pos, end)", indent)
        return
    # Null is -1, but 0 in a tagged field.
    present = "< 0x80" if field.tag is None else "!= 0"
    source.add(f"f_{field.name} = None\npos += 1\nif buf[pos - 1] {present}:", indent)
    source.add(f"f_{field.name}, pos = {nested}(buf, pos, end)", indent + 1)


def _decode_length(source: _Source, flexible: bool, short: bool, indent: int) -> None:
    """Read a length into ``n``: -1 for null."""
    if flexible:
        source.add("n = buf[pos] - 1; pos += 1\nif n > 126: n, pos = long_uvarint(buf, pos - 1); n -= 1", indent)
    elif short:
        source.add("(n,) = INT16(buf, pos); pos += 2", indent)
    else:
        source.add("(n,) = INT32(buf, pos); pos += 4", indent)


def _decode_bytes(source: _Source, target: str, type_: str, flexible: bool, nullable: bool, indent: int) -> None:
    _decode_length(source, flexible, type_ == "string", indent)
    value = {
        "string": "str(buf[pos:pos + n], 'utf-8')",
        "bytes": "bytes(buf[pos:pos + n])",
        "records": "buf[pos:pos + n]",
    }[type_]
    source.add("if n < 0:", indent)
    if nullable:
        source.add(f"if n != -1: raise ValueError('a length of %d' % n)\n{target} = None", indent + 1)
    else:
        source.add("raise ValueError('null where a value is needed')", indent + 1)
    source.add("else:", indent)
    source.add("if n > end - pos: raise ValueError('%d bytes do not fit' % n)", indent + 1)
    source.add(f"{target} = {value}; pos += n", indent + 1)


def _decode_array(source: _Source, field: Field, flexible: bool, nested: str | None, indent: int) -> None:
    name = f"f_{field.name}"
    _decode_length(source, flexible, False, indent)
    source.add("if n < 0:", indent)
    if field.nullable:
        source.add(f"if n != -1: raise ValueError('an array of %d' % n)\n{name} = None", indent + 1)
    else:
        source.add("raise ValueError('null where an array is needed')", indent + 1)
    source.add("else:", indent)
    # Every item takes at least one byte, so a longer array is invalid. Check before allocating memory.
    source.add("if n > end - pos: raise ValueError('an array of %d does not fit' % n)", indent + 1)
    _count_items(source, indent + 1)
    if field.type in FIXED and field.type != "uuid":
        size = struct.calcsize(">" + FIXED[field.type])
        source.add(f"if n * {size} > end - pos: raise ValueError('an array of %d does not fit' % n)", indent + 1)
        source.add(f"{name} = unpack_from('>%d{FIXED[field.type]}' % n, buf, pos); pos += n * {size}", indent + 1)
        return
    source.add(f"{name} = []\nfor _ in range(n):", indent + 1)
    if field.type == "struct":
        source.add(f"item, pos = {nested}(buf, pos, end)", indent + 2)
    elif field.type == "uuid":
        source.add("(item,) = UUID16(buf, pos); pos += 16", indent + 2)
        source.add("item = None if item == ZERO_UUID else UUID(bytes=item)", indent + 2)
    else:
        _decode_bytes(source, "item", field.type, flexible, False, indent + 2)
    source.add(f"{name}.append(item)", indent + 2)


def _count_items(source: _Source, indent: int) -> None:
    if source.items is not None:
        source.add(f"{source.items}[0] -= n\nif {source.items}[0] < 0: raise ValueError('too many items')", indent)


def _decode_tags(source: _Source, tagged: list[Field], nested: dict[str, str]) -> None:
    for field in tagged:
        source.add(f"f_{field.name} = {source.bind('default', empty_value(field))}")
    source.add("n = buf[pos]; pos += 1\nif n:")
    source.add("if n > 127: n, pos = long_uvarint(buf, pos - 1)", 2)
    source.add(f"if n > {MAX_TAGS}: raise ValueError('%d tagged fields' % n)", 2)
    _count_items(source, 2)
    source.add("for _ in range(n):", 2)
    source.add("tag, pos = long_uvarint(buf, pos); size, pos = long_uvarint(buf, pos); stop = pos + size", 3)
    source.add("if stop > end: raise ValueError('a tagged field runs past the end')", 3)
    for field in tagged:
        source.add(f"if tag == {field.tag}:", 3)
        _decode_variable(source, field, True, nested.get(field.name), 4)
    source.add("pos = stop", 3)


def _long_uvarint(buffer: Any, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise ValueError("a varint is longer than five bytes")


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────────


def compile_encoder(name: str, fields: list[Field], version: int, flexible: bool) -> Encoder:
    """Return a function (buffer, message) that appends the message."""
    source = _Source()
    function = _encode_struct(source, name, fields, version, flexible)
    encoder: Encoder = source.compile(f"encode {name} v{version}")[function]
    return encoder


def compile_framer(name: str, fields: list[Field], version: int, flexible: bool) -> Framer:
    """Return a function (head, message) -> buffer that makes a frame: its size, the head, the message."""
    encode = compile_encoder(name, fields, version, flexible)

    def frame(head: bytes, message: dict[str, Any]) -> Buffer:
        out = Buffer(b"\0\0\0\0" + head)
        encode(out, message)
        _INT32.pack_into(out, 0, len(out) - 4 + sum(value.length for _, value in out.splices))
        return out

    return frame


def _encode_struct(source: _Source, name: str, fields: list[Field], version: int, flexible: bool) -> str:
    here = present(fields, version)
    nested = {
        field.name: _encode_struct(source, f"{name}_{field.name}", children_of(field), version, flexible)
        for field in here
        if field.type == "struct"
    }
    function = f"encode_{name}"
    source.add(f"def {function}(out, m):", 0)
    source.add("pass")
    if _fields.STRICT:
        known = source.bind("known", frozenset(field.name for field in fields))
        source.add(f"if not m.keys() <= {known}: raise KeyError('{name} has no field %s' % (m.keys() - {known}))")
    for fixed, run in groupby((f for f in here if f.tag is None), key=lambda field: bool(field.fixed)):
        if fixed:
            run_ = list(run)
            pack = source.bind("pack", struct.Struct(">" + "".join(field.fixed or "" for field in run_)).pack)
            source.add(f"out += {pack}({', '.join(_value(source, field) for field in run_)})")
        else:
            for field in run:
                source.add(f"v = {_value(source, field)}")
                _encode_variable(source, field, flexible, nested.get(field.name), 1)
    if flexible:
        _encode_tags(source, [field for field in here if field.tag is not None], nested)
    return function


def _value(source: _Source, field: Field) -> str:
    value = f"m[{field.name!r}]"
    if field.default is not ...:
        value = f"m.get({field.name!r}, {source.bind('default', field.default)})"
    return f"uuid_bytes({value})" if field.fixed and field.type == "uuid" else value


def _encode_variable(source: _Source, field: Field, flexible: bool, nested: str | None, indent: int) -> None:
    if field.array:
        _encode_array(source, field, flexible, nested, indent)
    elif field.type == "struct":
        if field.nullable:
            null = "b'\\xff'" if field.tag is None else "b'\\0'"
            source.add(f"if v is None: out += {null}", indent)
            source.add(f"else:\n    out += b'\\1'\n    {nested}(out, v)", indent)
        else:
            source.add(f"{nested}(out, v if v is not None else EMPTY)", indent)
    elif field.type == "uuid":
        source.add("out += uuid_bytes(v)", indent)
    elif field.type in FIXED:
        source.add(f"out += {source.bind('pack', struct.Struct('>' + FIXED[field.type]).pack)}(v)", indent)
    else:
        _encode_bytes(source, field.type, flexible, indent)


def _encode_length(source: _Source, flexible: bool, short: bool, expression: str, indent: int) -> None:
    if flexible:
        source.add(f"n = {expression} + 1", indent)
        source.add("if n < 128: out.append(n)\nelse: write_uvarint(out, n)", indent)
    else:
        source.add(f"out += {'PACK16' if short else 'PACK32'}({expression})", indent)


def _encode_bytes(source: _Source, type_: str, flexible: bool, indent: int) -> None:
    null = "b'\\0'" if flexible else ("b'\\xff\\xff'" if type_ == "string" else "b'\\xff\\xff\\xff\\xff'")
    source.add(f"if v is None: out += {null}\nelse:", indent)
    if type_ == "string":
        source.add("v = v.encode()", indent + 1)
    if type_ == "records":
        source.add("if hasattr(v, 'length'):", indent + 1)
        _encode_length(source, flexible, False, "v.length", indent + 2)
        source.add("out.splices.append((len(out), v))", indent + 2)
        source.add("else:", indent + 1)
        _encode_length(source, flexible, False, "len(v)", indent + 2)
        source.add("out += v", indent + 2)
        return
    _encode_length(source, flexible, type_ == "string", "len(v)", indent + 1)
    source.add("out += v", indent + 1)


def _encode_array(source: _Source, field: Field, flexible: bool, nested: str | None, indent: int) -> None:
    source.add("if v is None: out += " + ("b'\\0'" if flexible else "b'\\xff\\xff\\xff\\xff'") + "\nelse:", indent)
    _encode_length(source, flexible, False, "len(v)", indent + 1)
    if field.type in FIXED and field.type != "uuid":
        source.add(f"out += pack('>%d{FIXED[field.type]}' % len(v), *v)", indent + 1)
        return
    if field.type == "struct":
        source.add(f"for item in v: {nested}(out, item)", indent + 1)
        return
    source.add("for v in v:", indent + 1)
    if field.type == "uuid":
        source.add("out += uuid_bytes(v)", indent + 2)
    else:
        _encode_bytes(source, field.type, flexible, indent + 2)


def _encode_tags(source: _Source, tagged: list[Field], nested: dict[str, str]) -> None:
    if not tagged:
        source.add("out.append(0)")
        return
    source.add("tags = []")
    for field in sorted(tagged, key=lambda field: field.tag or 0):
        default = source.bind("default", empty_value(field))
        # A nullable struct is written even if it is null: Kafka reads a missing one as an empty one.
        always = field.type == "struct" and field.nullable and not field.array
        is_told = "True" if always else ("v" if field.array else f"v != {default}")
        source.add(f"v = m.get({field.name!r}, {default})\nif {is_told}:")
        source.add("whole = out; out = Buffer()", 2)
        _encode_variable(source, field, True, nested.get(field.name), 2)
        source.add(f"tags.append(({field.tag}, out)); out = whole", 2)
    source.add("write_uvarint(out, len(tags))\nfor tag, data in tags:")
    source.add("write_uvarint(out, tag); write_uvarint(out, len(data)); out += data", 2)


def _write_uvarint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _uuid_bytes(value: UUID | None) -> bytes:
    return ZERO_UUID if value is None else value.bytes


_RUNTIME: dict[str, Any] = {
    "Buffer": Buffer,
    "EMPTY": {},
    "INT16": struct.Struct(">h").unpack_from,
    "INT32": _INT32.unpack_from,
    "PACK16": struct.Struct(">h").pack,
    "PACK32": _INT32.pack,
    "UUID": UUID,
    "UUID16": struct.Struct(">16s").unpack_from,
    "ZERO_UUID": ZERO_UUID,
    "long_uvarint": _long_uvarint,
    "new": object.__new__,
    "pack": struct.pack,
    "unpack_from": struct.unpack_from,
    "uuid_bytes": _uuid_bytes,
    "write_uvarint": _write_uvarint,
}
