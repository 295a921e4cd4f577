"""Read a .proto text into a FileDescriptorProto, without protoc.

The text is a schema, so this reads all of proto2, proto3 and editions that a schema needs. The pool of the `protobuf`
package links the result: it resolves names and finds mistakes such as a number that is used twice.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2 as pb

from ottla.registry.protobuf.cursor import Cursor
from ottla.registry.protobuf.options import Options

_FIELD = pb.FieldDescriptorProto
SCALARS = {
    name: getattr(_FIELD, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
        "sfixed64", "bool", "string", "bytes",
    )
}  # fmt: skip
_LABELS = {
    "optional": _FIELD.LABEL_OPTIONAL,
    "required": _FIELD.LABEL_REQUIRED,
    "repeated": _FIELD.LABEL_REPEATED,
}
_LARGEST = {"message": 536870912, "enum": 2147483647}
_DEEPEST = 60


def read(text: str, name: str = "schema.proto") -> pb.FileDescriptorProto:
    """The file in a text.

    >>> read('syntax = "proto3"; message Order { int64 id = 1; }').message_type[0].field[0].name
    'id'
    """
    return _Parser(text).file(name)


class _Parser:
    def __init__(self, text: str) -> None:
        self._cursor = Cursor(text)
        self._options = Options(self._cursor)
        self._proto3 = False
        self._editions = False
        self._depth = 0

    # ── a file ────────────────────────────────────────────────────────────────────────────────────────────────────

    def file(self, name: str) -> pb.FileDescriptorProto:
        file = pb.FileDescriptorProto(name=name)
        if self._cursor.at("syntax") or self._cursor.at("edition"):
            self._syntax(file)
        while self._cursor.now.kind != "end":
            self._top(file)
        return file

    def _syntax(self, file: pb.FileDescriptorProto) -> None:
        word = self._cursor.word()
        self._cursor.want("=")
        value = self._cursor.string()
        self._cursor.want(";")
        if word == "edition":
            self._editions = True
            try:
                file.edition = pb.Edition.Value(f"EDITION_{value}")
            except ValueError:
                self._cursor.fail(f"unknown edition {value!r}")
            file.syntax = "editions"
        elif value == "proto3":
            self._proto3 = True
            file.syntax = value
        elif value != "proto2":
            self._cursor.fail(f"unknown syntax {value!r}")

    def _top(self, file: pb.FileDescriptorProto) -> None:
        if self._cursor.take(";"):
            return
        word = self._cursor.now.text
        if word == "message":
            self._message(file.message_type.add())
        elif word == "enum":
            self._enum(file.enum_type.add())
        elif word == "extend":
            self._extend(file.extension, file.message_type)
        elif word == "service":
            self._service(file.service.add())
        elif self._cursor.take("option"):
            self._options.option(file.options)
            self._cursor.want(";")
        elif self._cursor.take("package"):
            file.package = self._cursor.name()
            self._cursor.want(";")
        elif self._cursor.take("import"):
            kind = (
                self._cursor.next().text
                if self._cursor.now.text in ("public", "weak") and self._cursor.now.kind == "word"
                else ""
            )
            if kind:
                getattr(file, f"{kind}_dependency").append(len(file.dependency))
            file.dependency.append(self._cursor.string())
            self._cursor.want(";")
        else:
            self._cursor.fail("expected message, enum, import, option, package, service or extend")

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _message(self, message: pb.DescriptorProto) -> None:
        self._cursor.want("message")
        message.name = self._cursor.word()
        self._body(message)

    def _body(self, message: pb.DescriptorProto) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._cursor.fail("messages are nested too deeply")
        self._cursor.want("{")
        synthetic: list[Any] = []
        while not self._cursor.take("}"):
            self._member(message, synthetic)
        # Each optional field of proto3 has a oneof of its own, after those of the text.
        taken = {one.name for one in message.oneof_decl} | {one.name for one in message.field}
        for field in synthetic:
            field.oneof_index = len(message.oneof_decl)
            name = f"_{field.name}"
            while name in taken:
                name = f"X{name}"
            taken.add(name)
            message.oneof_decl.add(name=name)
        self._depth -= 1

    def _member(self, message: pb.DescriptorProto, synthetic: list[Any]) -> None:
        after = self._cursor.ahead(1)
        word = (
            self._cursor.now.text
            if after.kind in ("word", "number", "text") or after.text in ("(", ".", "<", "-")
            else ""
        )
        if self._cursor.take(";"):
            return
        if word == "message" and self._is_block():
            self._message(message.nested_type.add())
        elif word == "enum" and self._is_block():
            self._enum(message.enum_type.add())
        elif word == "extend" and self._is_block():
            self._extend(message.extension, message.nested_type)
        elif word == "oneof" and self._is_block():
            self._oneof(message)
        elif word == "option" and self._is_option():
            self._cursor.next()
            self._options.option(message.options)
            self._cursor.want(";")
        elif word == "reserved":
            self._cursor.next()
            self._reserved(message, "message")
        elif word == "extensions":
            self._cursor.next()
            for start, end in self._ranges("message"):
                message.extension_range.add(start=start, end=end)
            if self._cursor.at("["):
                self._options.bracketed(message.extension_range[-1].options)
            self._cursor.want(";")
        else:
            field = message.field.add()
            self._field(field, message.nested_type)
            if self._proto3 and field.proto3_optional:
                synthetic.append(field)

    def _is_block(self) -> bool:
        """Whether a word is a keyword with a name and a block, and not the type of a field."""
        far = 1
        while self._cursor.ahead(far).kind == "word" or self._cursor.ahead(far).text == ".":
            far += 1
        return self._cursor.ahead(far).text == "{"

    def _is_option(self) -> bool:
        """Whether ``option`` begins an option, and is not the type of a field."""
        return self._cursor.ahead(1).text == "(" or self._cursor.ahead(2).text in ("=", ".")

    def _oneof(self, message: pb.DescriptorProto) -> None:
        self._cursor.next()
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._cursor.word())
        self._cursor.want("{")
        while not self._cursor.take("}"):
            if self._cursor.take(";"):
                continue
            if self._cursor.at("option") and self._is_option():
                self._cursor.next()
                self._options.option(oneof.options)
                self._cursor.want(";")
                continue
            field = message.field.add()
            self._field(field, message.nested_type, labels=False)
            field.oneof_index = index

    def _field(self, field: Any, nested: Any, *, labels: bool = True) -> None:
        field.label = _FIELD.LABEL_OPTIONAL
        if labels and self._cursor.now.text in _LABELS and self._cursor.ahead(1).text not in ("=", "."):
            label = self._cursor.next().text
            field.label = _LABELS[label]
            if self._proto3 and label == "optional":
                field.proto3_optional = True
            if self._proto3 and label == "required":
                self._cursor.fail("required is not allowed in proto3")
        elif labels and not self._proto3 and not self._editions and not self._cursor.at("map"):
            self._cursor.fail("expected optional, required or repeated, as proto2 needs")
        if self._cursor.at("map") and self._cursor.ahead(1).text == "<":
            self._map(field, nested)
            return
        if self._cursor.at("group") and self._cursor.ahead(2).text == "=":
            self._group(field, nested)
            return
        self._type(field)
        field.name = self._cursor.word()
        self._number_and_options(field)
        self._cursor.want(";")

    def _type(self, field: Any) -> None:
        name = self._cursor.name()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _number_and_options(self, field: Any) -> None:
        self._cursor.want("=")
        field.number = self._cursor.integer()
        if self._cursor.at("["):
            self._options.bracketed(field.options, field)

    def _map(self, field: Any, nested: Any) -> None:
        self._cursor.next()
        self._cursor.want("<")
        entry = nested.add()
        entry.options.map_entry = True
        for number, part in enumerate(("key", "value"), 1):
            one = entry.field.add(name=part, number=number, label=_FIELD.LABEL_OPTIONAL)
            self._type(one)
            self._cursor.want("," if part == "key" else ">")
        field.name = self._cursor.word()
        entry.name = f"{_camel(field.name)}Entry"
        field.label = _FIELD.LABEL_REPEATED
        field.type = _FIELD.TYPE_MESSAGE
        field.type_name = entry.name
        self._number_and_options(field)
        self._cursor.want(";")

    def _group(self, field: Any, nested: Any) -> None:
        self._cursor.next()
        message = nested.add(name=self._cursor.word())
        field.name, field.type, field.type_name = message.name.lower(), _FIELD.TYPE_GROUP, message.name
        self._number_and_options(field)
        self._body(message)

    def _extend(self, extensions: Any, nested: Any) -> None:
        self._cursor.next()
        extendee = self._cursor.name()
        self._cursor.want("{")
        while not self._cursor.take("}"):
            if self._cursor.take(";"):
                continue
            field = extensions.add(extendee=extendee)
            self._field(field, nested)

    def _ranges(self, kind: str) -> list[tuple[int, int]]:
        """Ranges of numbers; the end is exclusive in messages and inclusive in enums."""
        found = []
        while True:
            start = end = self._cursor.integer()
            if self._cursor.take("to"):
                end = _LARGEST[kind] - (kind == "message") if self._cursor.take("max") else self._cursor.integer()
            found.append((start, end + (kind == "message")))
            if not self._cursor.take(","):
                return found

    def _reserved(self, into: Any, kind: str) -> None:
        if self._cursor.now.kind == "number" or self._cursor.at("-"):
            for start, end in self._ranges(kind):
                into.reserved_range.add(start=start, end=end)
        else:
            while True:
                into.reserved_name.append(
                    self._cursor.string() if self._cursor.now.kind == "text" else self._cursor.word()
                )
                if not self._cursor.take(","):
                    break
        self._cursor.want(";")

    # ── enums and services ────────────────────────────────────────────────────────────────────────────────────────

    def _enum(self, enum: pb.EnumDescriptorProto) -> None:
        self._cursor.want("enum")
        enum.name = self._cursor.word()
        self._cursor.want("{")
        while not self._cursor.take("}"):
            if self._cursor.take(";"):
                continue
            is_value = self._cursor.ahead(1).text == "="
            if not is_value and self._cursor.take("option"):
                self._options.option(enum.options)
                self._cursor.want(";")
            elif not is_value and self._cursor.take("reserved"):
                self._reserved(enum, "enum")
            else:
                value = enum.value.add(name=self._cursor.word())
                self._cursor.want("=")
                value.number = self._cursor.integer()
                if self._cursor.at("["):
                    self._options.bracketed(value.options)
                self._cursor.want(";")

    def _service(self, service: pb.ServiceDescriptorProto) -> None:
        self._cursor.want("service")
        service.name = self._cursor.word()
        self._cursor.want("{")
        while not self._cursor.take("}"):
            if self._cursor.take(";"):
                continue
            if self._cursor.take("option"):
                self._options.option(service.options)
                self._cursor.want(";")
            else:
                self._cursor.want("rpc")
                self._method(service.method.add())

    def _method(self, method: pb.MethodDescriptorProto) -> None:
        method.name = self._cursor.word()
        method.client_streaming, method.input_type = self._message_type()
        self._cursor.want("returns")
        method.server_streaming, method.output_type = self._message_type()
        for flag in ("client_streaming", "server_streaming"):
            if not getattr(method, flag):
                method.ClearField(flag)
        if self._cursor.take("{"):
            while not self._cursor.take("}"):
                if not self._cursor.take(";"):
                    self._cursor.want("option")
                    self._options.option(method.options)
                    self._cursor.want(";")
        else:
            self._cursor.want(";")

    def _message_type(self) -> tuple[bool, str]:
        self._cursor.want("(")
        streams = self._cursor.at("stream") and self._cursor.ahead(1).text != ")" and self._cursor.take("stream")
        name = self._cursor.name()
        self._cursor.want(")")
        return streams, name


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
