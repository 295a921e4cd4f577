"""Decide whether one Protobuf schema reads what another wrote, by the rules of Confluent's registry.

Protobuf skips fields that it does not know, so adding and removing fields is compatible. A field that keeps its number
must keep its kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from ottla.registry.protobuf.files import ProtoFile

_GROUPS = {
    "number": ("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"),
    "signed number": ("SINT32", "SINT64"),
    "string or bytes": ("STRING", "BYTES"),
    "fixed32": ("FIXED32", "SFIXED32"),
    "fixed64": ("FIXED64", "SFIXED64"),
    "float": ("FLOAT",),
    "double": ("DOUBLE",),
    "message": ("MESSAGE", "GROUP"),
}
_KINDS = {getattr(FieldDescriptor, f"TYPE_{one}"): kind for kind, names in _GROUPS.items() for one in names}


def problems(reader: ProtoFile, writer: ProtoFile) -> list[str]:
    """Why data written with `writer` cannot be read with `reader`; empty if it can."""
    return list(_Comparison(writer, reader).files())


class _Comparison:
    def __init__(self, old: ProtoFile, new: ProtoFile) -> None:
        self._old, self._new = old.descriptor, new.descriptor
        self._compared: set[tuple[str, str]] = set()

    def files(self) -> Iterator[str]:
        if self._old.package != self._new.package:
            yield _problem("PACKAGE_CHANGED", "#/")
        yield from self._messages(self._old.message_types_by_name, self._new.message_types_by_name, "#/")

    def _messages(self, before: Any, after: Any, path: str) -> Iterator[str]:
        for name, old in before.items():
            if old.GetOptions().map_entry:
                continue
            if name in after:
                yield from self._message(old, after[name], f"{path}{name}/")
            elif not self._moved(name):
                yield _problem("MESSAGE_REMOVED", f"{path}{name}")

    def _moved(self, name: str) -> bool:
        """Whether a message is now elsewhere in the file, as a nested one or no longer nested."""
        waiting = list(self._new.message_types_by_name.values())
        while waiting:
            one = waiting.pop()
            if one.name == name:
                return True
            waiting.extend(one.nested_types)
        return False

    def _message(self, old: Any, new: Any, path: str) -> Iterator[str]:
        if (old.full_name, new.full_name) in self._compared:
            return
        self._compared.add((old.full_name, new.full_name))
        before, after = old.fields_by_number, new.fields_by_number
        yield from _oneofs(old, new, path)
        deleted = _deleted_oneofs(old, new)
        for number in sorted({*before, *after}):
            if number not in after:
                yield from _removed(before[number], deleted, f"{path}{number}")
            elif number not in before:
                if after[number].is_required:
                    yield _problem("REQUIRED_FIELD_ADDED", f"{path}{number}")
            else:
                yield from self._field(before[number], after[number], f"{path}{number}")
        yield from self._messages(old.nested_types_by_name, new.nested_types_by_name, path)

    def _field(self, old: Any, new: Any, path: str) -> Iterator[str]:
        if _is_map(old) != _is_map(new):
            yield _problem("FIELD_KIND_CHANGED", path)
            return
        if _is_map(old):
            for part in ("key", "value"):
                one, other = (field.message_type.fields_by_name[part] for field in (old, new))
                yield from self._type(one, other, f"{path}/{part}")
            return
        yield from self._type(old, new, path)
        is_packed = _KINDS[old.type] not in ("string or bytes", "message")
        if is_packed and _KINDS[old.type] == _KINDS[new.type] and old.is_repeated != new.is_repeated:
            yield _problem("FIELD_NUMERIC_LABEL_CHANGED", path)

    def _type(self, old: Any, new: Any, path: str) -> Iterator[str]:
        before, after = _KINDS[old.type], _KINDS[new.type]
        if before != after:
            is_message = "message" in (before, after)
            yield _problem("FIELD_KIND_CHANGED" if is_message else "FIELD_SCALAR_KIND_CHANGED", path)
        elif before == "message":
            one, other = old.message_type, new.message_type
            if _local_name(one) != _local_name(other):
                yield _problem("FIELD_NAMED_TYPE_CHANGED", path)
            else:
                yield from self._message(one, other, f"{path}/")


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _local_name(message: Any) -> str:
    return str(message.full_name).removeprefix(f"{message.file.package}.")


def _real_oneofs(message: Any) -> dict[str, set[int]]:
    """The oneofs of the text, with the numbers of their fields; optional fields of proto3 have one that is hidden."""
    found = {one.name: {field.number for field in one.fields} for one in message.oneofs}
    return {name: numbers for name, numbers in found.items() if not _is_hidden(message, name)}


def _is_hidden(message: Any, name: str) -> bool:
    fields = message.oneofs_by_name[name].fields
    return len(fields) == 1 and name.lstrip("X") == f"_{fields[0].name}"


def _oneofs(old: Any, new: Any, path: str) -> Iterator[str]:
    """Fields that could be set together must not become alternatives."""
    origin = {number: f"oneof {name}" for name, numbers in _real_oneofs(old).items() for number in numbers}
    for name, numbers in _real_oneofs(new).items():
        known = [number for number in numbers if number in old.fields_by_number]
        groups = {origin.get(number, str(number)) for number in known}
        if len(groups) > 1:
            several = sum(number not in origin for number in known) > 1
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if several else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield _problem(kind, f"{path}{name}")


def _deleted_oneofs(old: Any, new: Any) -> set[str]:
    """The oneofs of which nothing is left."""
    kept = new.fields_by_number
    found = _real_oneofs(old)
    return {name for name in found if name not in new.oneofs_by_name and not any(one in kept for one in found[name])}


def _removed(field: Any, deleted: set[str], path: str) -> Iterator[str]:
    oneof = field.containing_oneof
    if oneof is not None and not _is_hidden(field.containing_type, oneof.name):
        if oneof.name not in deleted:
            yield _problem("ONEOF_FIELD_REMOVED", path)
    elif field.is_required:
        yield _problem("REQUIRED_FIELD_REMOVED", path)


def _problem(kind: str, path: str) -> str:
    return f"{{errorType:'{kind}', path:'{path}'}}"
