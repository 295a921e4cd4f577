"""A Protobuf schema that is linked with the files it imports."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool, message

from ottla.registry.errors import InvalidSchema
from ottla.registry.protobuf.parsing import read
from ottla.registry.protobuf.printing import printed

_OWN = "schema.proto"
_SPACE_OR_SIGN = re.compile(r"[\s={};\"]")
#: Files that need no reference: they come with the protobuf package.
KNOWN = tuple(
    f"google/protobuf/{name}.proto"
    for name in (
        "any", "source_context", "type", "api", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp",
        "wrappers",
    )
)  # fmt: skip


class ProtoFile:
    """A schema from a .proto text, or from a FileDescriptorProto in base64 as clients for Python send it.

    >>> ProtoFile('syntax = "proto3"; message Order { int64 id = 1; }').descriptor.message_types_by_name["Order"].name
    'Order'
    """

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        self._references = dict(references or {})
        pool = descriptor_pool.DescriptorPool()
        added: set[str] = set()
        for name in self._references:
            if name not in added:
                self._add(pool, name, added, ())
        self.given = _file(text, _free_name(self._references))
        try:
            self._imports(pool, self.given, added, ())
            # A file without messages has no use, and most texts that are no schema look like one.
            if not (self.given.message_type or self.given.enum_type or self.given.service or self.given.extension):
                raise InvalidSchema("the file declares no message, enum, service or extension")
            self.descriptor: Any = _linked(pool, self.given)
        except RecursionError:
            raise InvalidSchema("the schema is nested too deeply") from None
        self.pool = pool

    def _add(self, pool: Any, name: str, added: set[str], parents: tuple[str, ...]) -> None:
        file = _file(self._references[name], name)
        added.add(name)
        self._imports(pool, file, added, (*parents, name))
        _linked(pool, file)

    def _imports(self, pool: Any, file: pb.FileDescriptorProto, added: set[str], parents: tuple[str, ...]) -> None:
        for name in file.dependency:
            if name in parents:
                raise InvalidSchema(f"the file {name} imports itself")
            if name in added:
                continue
            if name in self._references:
                self._add(pool, name, added, parents)
            elif name in KNOWN:
                for serialized in _known(name):
                    pool.AddSerializedFile(serialized)
                added.add(name)
            else:
                raise InvalidSchema(f'the import {name!r} is missing: give it in "references" with this name')

    def proto(self) -> pb.FileDescriptorProto:
        """The file with resolved names."""
        file = pb.FileDescriptorProto()
        self.descriptor.CopyToProto(file)
        for one in _all_fields(file):
            one.ClearField("json_name") if one.json_name == _default_json_name(one.name) else None
        return file

    def canonical(self, *, normalize: bool = False) -> str:
        """The schema as a .proto text in one form; `normalize` also sorts imports, options, messages and fields."""
        file = self.proto()
        if normalize:
            _sort(file)
        text = printed(file)
        # A short name may mean another type where it is used; then the full names are printed.
        try:
            again = ProtoFile(text, self._references).proto()
            again.name = file.name
            if again.message_type == file.message_type and again.extension == file.extension:
                return text
        except InvalidSchema:
            pass
        return printed(file, relative=False)

    def serialized(self) -> str:
        """The FileDescriptorProto in base64: what ``format=serialized`` asks for."""
        file = self.proto()
        file.name = "default"
        return base64.b64encode(file.SerializeToString()).decode()


def _file(text: str, name: str) -> pb.FileDescriptorProto:
    """Read a text, or base64 if it has none of the signs that every .proto text has."""
    if not _SPACE_OR_SIGN.search(text.strip().rstrip("=")):
        try:
            file = pb.FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
        except (binascii.Error, ValueError, message.DecodeError):
            raise InvalidSchema("neither a .proto text nor a FileDescriptorProto in base64") from None
        file.ClearField("source_code_info")
    else:
        try:
            file = read(text, name)
        except (ValueError, UnicodeError) as error:
            raise InvalidSchema(f"not a .proto text: {error}") from None
    file.name = name
    return file


def _free_name(references: Mapping[str, str]) -> str:
    name = _OWN
    while name in references:
        name = f"_{name}"
    return name


def _linked(pool: Any, file: pb.FileDescriptorProto) -> Any:
    try:
        pool.Add(file)
        return pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as error:
        text = " ".join(str(error).split()).removeprefix("Couldn't build proto file into descriptor pool: ")
        raise InvalidSchema(text.removeprefix("couldn't build proto file into descriptor pool: ")) from None


@cache
def _known(name: str) -> tuple[bytes, ...]:
    module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    descriptor = module.DESCRIPTOR
    before = [one for other in descriptor.dependencies for one in _known(other.name)]
    return (*before, descriptor.serialized_pb)


def _all_fields(part: Any) -> Any:
    messages = part.message_type if isinstance(part, pb.FileDescriptorProto) else part.nested_type
    if isinstance(part, pb.DescriptorProto):
        yield from part.field
    yield from part.extension
    for one in messages:
        yield from _all_fields(one)


def _default_json_name(name: str) -> str:
    found, upper = "", False
    for letter in name:
        if letter == "_":
            upper = True
        else:
            found += letter.upper() if upper else letter
            upper = False
    return found


def _sort(part: Any) -> None:
    """Put everything into an order that does not depend on how the file was written, where that changes no meaning."""
    if isinstance(part, pb.FileDescriptorProto) and not part.public_dependency and not part.weak_dependency:
        part.dependency.sort()
    if isinstance(part, pb.DescriptorProto):
        part.field.sort(key=lambda one: one.number)
        part.reserved_name.sort()
        part.reserved_range.sort(key=lambda one: one.start)
    nested = part.message_type if isinstance(part, pb.FileDescriptorProto) else part.nested_type
    for one in nested:
        _sort(one)
