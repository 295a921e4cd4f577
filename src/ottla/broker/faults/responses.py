"""The error response to any request, made from the schemas: each thing that was asked for gets the error.

A response repeats the structure of its request (topics, their partitions, groups, resources), and has an error code at
the lowest level, or at the highest for errors of a whole group. What the request does not say gets a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ottla import errors
from ottla.errors import KafkaError
from ottla.protocol._fields import Field, Struct, children_of, empty_value, present
from ottla.protocol._schemas import APIS
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message

_CODE = "error_code"
#: Their errors are those of the group or the request as a whole, except for these of a member or a partition.
_AT_THE_TOP: Mapping[int, Sequence[type[KafkaError]]] = {
    ApiKey.LEAVE_GROUP: (errors.UnknownMemberId, errors.FencedInstanceId),
    ApiKey.LIST_GROUPS: (),
    ApiKey.OFFSET_DELETE: (
        errors.GroupSubscribedToTopic, errors.TopicAuthorizationFailed, errors.UnknownTopicOrPartition,
    ),
    ApiKey.OFFSET_FETCH: (
        errors.TopicAuthorizationFailed, errors.UnknownTopicId, errors.UnknownTopicOrPartition,
        errors.UnstableOffsetCommit,
    ),
}  # fmt: skip
#: What a response repeats of its request, to say what the error is about. Names in one line mean the same.
_REPEATED = (
    ("name", "topic", "topic_name"),
    ("topic_id",),
    ("index", "partition", "partition_index", "partition_id"),
    ("key",),
    ("group_id",),
    ("member_id",),
    ("group_instance_id",),
    ("transactional_id",),
    ("producer_id",),
    ("resource_type",),
    ("resource_name",),
    ("user",),
)


def error_response(api_key: int, version: int, request: Struct, error: type[KafkaError]) -> Message:
    """Return the response that tells this error for everything in a request."""
    builder = _Builder(version, error, shallow=api_key in _AT_THE_TOP and error not in _AT_THE_TOP[api_key])
    requested, answered = ([Field(*field) for field in APIS[api_key][part]] for part in (4, 5))
    return builder.message(present(answered, version), present(requested, version), request)


def is_of_offsets(error: type[KafkaError], api_key: int) -> bool:
    """Whether a request for the offsets of groups gets an error for each partition, and not for each group."""
    return api_key == ApiKey.OFFSET_FETCH and error in _AT_THE_TOP[api_key]


def topics_of(api_key: int, version: int, request: Struct) -> set[str | UUID]:
    """Return the names or ids of the topics in a request."""
    return set(_topics(present([Field(*field) for field in APIS[api_key][4]], version), request, version))


def _topics(fields: Sequence[Field], request: Any, version: int) -> Iterable[str | UUID]:
    for field in fields:
        value = getattr(request, field.name, None)
        if "topic" in field.name and field.array and field.type in ("string", "uuid"):
            yield from value or ()
        elif field.type == "struct" and value is not None:
            inner = present(children_of(field), version)
            for one in value if field.array else (value,):
                if "topic" in field.name:
                    yield from (found for name in ("name", "topic", "topic_id") if (found := getattr(one, name, None)))
                yield from _topics(inner, one, version)


class _Builder:
    def __init__(self, version: int, error: type[KafkaError], *, shallow: bool) -> None:
        self._version = version
        self._error = error
        self._shallow = shallow

    def message(self, fields: Sequence[Field], asked: Sequence[Field], request: Any) -> Message:
        """Return a part of the response for a part of the request: a struct, or a name or number."""
        own_code = next((field for field in fields if field.name.endswith(_CODE)), None)
        made: Message = {}
        told = False
        for field in fields:
            if field.array and field.type == "struct" and not (self._shallow and own_code is not None):
                items = self._items(field, asked, request)
                made[field.name] = items
                told |= bool(items)
            elif field.array:
                made[field.name] = None if field.nullable else ()
            elif field.type != "struct" or field.default is ...:
                made[field.name] = self._value(field, request)
        if own_code is not None:
            made[own_code.name] = 0 if told else self._error.code
        return made

    def _items(self, field: Field, asked: Sequence[Field], request: Any) -> list[Message]:
        """The items of an array: one for each item of the request that has a place for the error."""
        fields = present(children_of(field), self._version)
        if not _has_code(fields, self._version):
            return []
        for source in asked:
            values = getattr(request, source.name, None) if source.array else None
            if values:
                inner = present(children_of(source), self._version) if source.type == "struct" else ()
                return [self.message(fields, inner, value) for value in values]
        return []

    def _value(self, field: Field, request: Any) -> Any:
        if field.name.endswith("error_message"):
            return self._error.default_message or None
        repeated = next((names for names in _REPEATED if field.name in names), ())
        if not isinstance(request, Struct):
            fits = {"string": str, "uuid": UUID, "int32": int}.get(field.type)
            return request if repeated and fits is not None and isinstance(request, fits) else _nothing(field)
        for name in repeated:
            value = getattr(request, name) if name in request.__slots__ else None
            if value is not None:
                return value
        return _nothing(field)


def _nothing(field: Field) -> Any:
    if field.default is not ... or field.array or field.type not in ("int16", "int32", "int64"):
        return b"" if field.type == "records" else empty_value(field)
    return -1


def _has_code(fields: Sequence[Field], version: int) -> bool:
    return any(
        field.name.endswith(_CODE)
        or (field.array and field.type == "struct" and _has_code(present(children_of(field), version), version))
        for field in fields
    )
