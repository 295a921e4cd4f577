"""Print a FileDescriptorProto as a .proto text in one form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2 as pb

from ottla.registry.protobuf.parsing import SCALARS
from ottla.registry.protobuf.tokens import quoted

_FIELD = pb.FieldDescriptorProto
_TYPES = {number: name for name, number in SCALARS.items()}
_LABELS = {_FIELD.LABEL_REQUIRED: "required ", _FIELD.LABEL_REPEATED: "repeated ", _FIELD.LABEL_OPTIONAL: "optional "}
_INDENT = "  "
_LARGEST = {"message": 536870912, "enum": 2147483647}


def printed(file: pb.FileDescriptorProto, *, relative: bool = True) -> str:
    """The text of a file whose names are resolved; `relative` leaves out the package of the file."""
    return "\n".join(_Printer(file, relative).file()) + "\n"


class _Printer:
    def __init__(self, file: pb.FileDescriptorProto, relative: bool) -> None:
        self._file = file
        self._package = f".{file.package}." if file.package else "."
        self._relative = relative

    def file(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            yield f'edition = "{pb.Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        if file.dependency:
            yield ""
        for number, name in enumerate(file.dependency):
            kind = "public " if number in file.public_dependency else "weak " if number in file.weak_dependency else ""
            yield f"import {kind}{quoted(name.encode())};"
        options = list(_options(file.options))
        if options:
            yield ""
        yield from (f"option {one};" for one in options)
        for message in file.message_type:
            yield ""
            yield from self._message(message, "")
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum, "")
        yield from self._extensions(file.extension, {}, "")
        for service in file.service:
            yield ""
            yield from self._service(service)

    def _message(self, message: pb.DescriptorProto, indent: str, head: str = "") -> Iterator[str]:
        yield f"{indent}{head or f'message {message.name}'} {{"
        inner = indent + _INDENT
        nested = {one.name: one for one in message.nested_type}
        yield from (f"{inner}option {one};" for one in _options(message.options))
        yield from _reserved(message, "message", inner)
        for one in message.extension_range:
            yield f"{inner}extensions {_range(one.start, one.end - 1, 'message')}{_bracketed(_options(one.options))};"
        printed_oneofs = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, nested, inner)
            elif field.oneof_index not in printed_oneofs:
                printed_oneofs.add(field.oneof_index)
                yield from self._oneof(message, field.oneof_index, nested, inner)
        used = {_short(one.type_name) for one in message.field if one.type == _FIELD.TYPE_GROUP}
        used |= {_short(one.type_name) for one in message.extension if one.type == _FIELD.TYPE_GROUP}
        for one in message.nested_type:
            if not one.options.map_entry and one.name not in used:
                yield from self._message(one, inner)
        for enum in message.enum_type:
            yield from self._enum(enum, inner)
        yield from self._extensions(message.extension, nested, inner)
        yield f"{indent}}}"

    def _oneof(self, message: pb.DescriptorProto, index: int, nested: dict[str, Any], indent: str) -> Iterator[str]:
        oneof = message.oneof_decl[index]
        yield f"{indent}oneof {oneof.name} {{"
        yield from (f"{indent}{_INDENT}option {one};" for one in _options(oneof.options))
        for field in message.field:
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield from self._field(field, nested, indent + _INDENT, label="")
        yield f"{indent}}}"

    def _field(self, field: Any, nested: dict[str, Any], indent: str, label: str | None = None) -> Iterator[str]:
        if label is None:
            label = self._label(field)
        entry = nested.get(_short(field.type_name)) if field.type == _FIELD.TYPE_MESSAGE else None
        options = _bracketed(self._field_options(field))
        if entry is not None and entry.options.map_entry:
            key, value = (self._type(one) for one in entry.field)
            yield f"{indent}map<{key}, {value}> {field.name} = {field.number}{options};"
        elif field.type == _FIELD.TYPE_GROUP and _short(field.type_name) in nested:
            group = nested[_short(field.type_name)]
            yield from self._message(group, indent, f"{label}group {group.name} = {field.number}{options}")
        else:
            yield f"{indent}{label}{self._type(field)} {field.name} = {field.number}{options};"

    def _label(self, field: Any) -> str:
        is_plain = self._file.syntax in ("proto3", "editions") and not field.proto3_optional
        return "" if is_plain and field.label == _FIELD.LABEL_OPTIONAL else _LABELS[field.label]

    def _type(self, field: Any) -> str:
        return _TYPES[field.type] if field.type in _TYPES else self._name(field.type_name)

    def _name(self, name: str) -> str:
        if self._relative and name.startswith(self._package):
            return name.removeprefix(self._package)
        return name

    def _field_options(self, field: Any) -> Iterator[str]:
        if field.HasField("default_value"):
            texts = (_FIELD.TYPE_STRING, _FIELD.TYPE_BYTES)
            value = field.default_value
            yield f"default = {quoted(value.encode()) if field.type in texts else value}"
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            yield f"json_name = {quoted(field.json_name.encode())}"
        yield from _options(field.options)

    def _enum(self, enum: pb.EnumDescriptorProto, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        inner = indent + _INDENT
        yield from (f"{inner}option {one};" for one in _options(enum.options))
        yield from _reserved(enum, "enum", inner)
        for value in enum.value:
            yield f"{inner}{value.name} = {value.number}{_bracketed(_options(value.options))};"
        yield f"{indent}}}"

    def _extensions(self, fields: Any, nested: dict[str, Any], indent: str) -> Iterator[str]:
        for field in fields:
            yield f"{indent}extend {self._name(field.extendee)} {{"
            yield from self._field(field, nested, indent + _INDENT)
            yield f"{indent}}}"

    def _service(self, service: pb.ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from (f"{_INDENT}option {one};" for one in _options(service.options))
        for one in service.method:
            given = f"{'stream ' if one.client_streaming else ''}{self._name(one.input_type)}"
            found = f"{'stream ' if one.server_streaming else ''}{self._name(one.output_type)}"
            options = [f"{_INDENT}{_INDENT}option {option};" for option in _options(one.options)]
            yield f"{_INDENT}rpc {one.name}({given}) returns ({found}){' {' if options else ';'}"
            yield from [*options, f"{_INDENT}}}"] if options else ()
        yield "}"


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _reserved(given: Any, kind: str, indent: str) -> Iterator[str]:
    for one in given.reserved_range:
        yield f"{indent}reserved {_range(one.start, one.end - (kind == 'message'), kind)};"
    for name in given.reserved_name:
        yield f"{indent}reserved {quoted(name.encode())};"


def _range(start: int, end: int, kind: str) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == _LARGEST[kind] - (kind == 'message') else end}"


def _bracketed(options: Iterator[str]) -> str:
    found = ", ".join(options)
    return f" [{found}]" if found else ""


def _options(options: Any) -> Iterator[str]:
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            yield from map(_uninterpreted, value)
        elif field.name != "map_entry" and not field.is_extension and field.message_type is None:
            for one in value if field.is_repeated else [value]:
                yield f"{field.name} = {_value(field, one)}"


def _value(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value.encode()) if isinstance(value, str) else str(value)


def _uninterpreted(option: Any) -> str:
    name = ".".join(f"({one.name_part})" if one.is_extension else one.name_part for one in option.name)
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {option.aggregate_value} }}"
    if option.HasField("string_value"):
        return f"{name} = {quoted(option.string_value)}"
    for kind in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(kind):
            return f"{name} = {getattr(option, kind)}"
    return f"{name} = {{}}"


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
