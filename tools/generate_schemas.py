"""Write src/ottla/protocol/_schemas.py from the message classes of the installed kio.

Run ``python tools/generate_schemas.py`` after an update of kio. A unit test compares the file with kio. The file exists
because importing kio's classes takes 5 to 10 ms for each version of each API.
"""

from __future__ import annotations

import dataclasses
import pprint
import sys
import types
import typing
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.index import load_entity_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

TARGET = Path(__file__).parent.parent / "src" / "ottla" / "protocol" / "_schemas.py"
#: Controller and quorum APIs of Kafka's brokers, and APIs that ottla does not support.
LEFT_OUT = {
    "add_raft_voter", "alter_share_group_offsets",
    "begin_quorum_epoch", "broker_registration", "controller_registration",
    "delete_share_group_offsets", "delete_share_group_state", "describe_share_group_offsets",
    "end_quorum_epoch", "fetch_snapshot", "initialize_share_group_state", "read_share_group_state",
    "read_share_group_state_summary", "remove_raft_voter", "share_acknowledge", "share_fetch",
    "share_group_describe", "share_group_heartbeat", "streams_group_describe", "streams_group_heartbeat",
    "update_raft_voter", "vote", "write_share_group_state",
}  # fmt: skip
DATA = ("consumer_protocol_assignment", "consumer_protocol_subscription")
TYPES = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}


def describe(cls: type[Any]) -> list[tuple[Any, ...]]:
    """Return the fields of one kio class as (name, type, array, nullable, tag, default, children)."""
    hints = typing.get_type_hints(cls)
    return [describe_field(field, hints[field.name]) for field in dataclasses.fields(cls)]


def describe_field(field: dataclasses.Field[Any], hint: Any) -> tuple[Any, ...]:
    nullable = array = False
    while (origin := typing.get_origin(hint)) is not None:
        arguments = typing.get_args(hint)
        if origin in (types.UnionType, typing.Union):
            # Array items are never nullable: None always belongs to the array.
            nullable = True
            hint = next(argument for argument in arguments if argument is not types.NoneType)
        else:
            array, hint = True, arguments[0]
    tag = field.metadata.get("tag")
    if dataclasses.is_dataclass(hint):
        return (field.name, "struct", array, nullable, tag, default_of(field, "struct", array), describe(hint))
    kind = field.metadata["kafka_type"]
    if kind == "datetime_i64" or kind == "uuid":
        nullable = False  # -1 and the zero uuid stand for "none" on the wire.
    return (field.name, TYPES.get(kind, kind), array, nullable, tag, default_of(field, kind, array), None)


def default_of(field: dataclasses.Field[Any], kind: str, array: bool) -> Any:
    """Return the default value, or ... if the schema requires a value."""
    value = field.default
    if array:
        return ... if value is dataclasses.MISSING else (None if value is None else ())
    if kind == "struct":
        return ... if value is dataclasses.MISSING else None
    if value is dataclasses.MISSING:
        if kind == "bool":
            return False
        return 0 if field.name in ("throttle_time", "error_code") else ...
    if isinstance(value, bool | bytes) or value is None or isinstance(value, UUID):
        return -1 if kind == "datetime_i64" else value
    if kind.startswith("timedelta"):
        return round(value.total_seconds() * 1000)
    if kind == "datetime_i64":
        return round(value.timestamp() * 1000)
    return str(value) if isinstance(value, str) else (float(value) if kind == "float64" else int(value))


def merge(by_version: dict[int, list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """Fold the field lists of all versions into one list of fields that carry their first and last version."""
    order: list[str] = []
    for version in sorted(by_version, reverse=True):
        previous = -1
        for name in [field[0] for field in by_version[version]]:
            if name in order:
                previous = max(previous, order.index(name))
            else:
                previous += 1
                order.insert(previous, name)
    merged = []
    for name in order:
        spans: list[tuple[int, int, tuple[Any, ...]]] = []
        children: dict[int, list[tuple[Any, ...]]] = {}
        for version in sorted(by_version):
            for field in by_version[version]:
                if field[0] != name:
                    continue
                if field[6] is not None:
                    children[version] = field[6]
                spec = field[1:6]
                if spans and spans[-1][2] == spec and spans[-1][1] == version - 1:
                    spans[-1] = (spans[-1][0], version, spec)
                else:
                    spans.append((version, version, spec))
        nested = tuple(merge(children)) if children else None
        merged += [(name, first, last, *spec, nested) for first, last, spec in spans]
    return merged


def message(name: str, kind: EntityType) -> tuple[Any, ...]:
    versions = schema_name_map[name]
    return tuple(merge({v: describe(load_entity_schema(name, v, kind)) for v in versions}))


def flexible_from(name: str, kind: EntityType) -> int:
    versions = sorted(schema_name_map[name])
    flexible = [v for v in versions if load_entity_schema(name, v, kind).__flexible__]
    return flexible[0] if flexible else versions[-1] + 1


def main() -> None:
    apis = {}
    for key, name in sorted(api_key_map.items()):
        if name in LEFT_OUT:
            continue
        versions = sorted(schema_name_map[name])
        apis[key] = (
            name, versions[0], versions[-1], flexible_from(name, EntityType.request),
            message(name, EntityType.request), message(name, EntityType.response),
        )  # fmt: skip
    data = {}
    for name in DATA:
        versions = sorted(schema_name_map[name])
        data[name] = (versions[0], versions[-1], flexible_from(name, EntityType.data), message(name, EntityType.data))
    text = (
        '"""Generated by tools/generate_schemas.py from kio; change nothing here by hand.\n\n'
        "APIS: key -> (name, first version, last version, flexible from, request fields, response fields).\n"
        "A field: (name, first version, last version, type, array, nullable, tag, default, children); a default of\n"
        '... means that a value must be given.\n"""\n\n'
        "# ruff: noqa\n"
        "from typing import Any\n\n"
        f"APIS: dict[int, tuple[Any, ...]] = {pprint.pformat(apis, width=110, compact=True)}\n\n"
        f"DATA: dict[str, tuple[Any, ...]] = {pprint.pformat(data, width=110, compact=True)}\n"
    ).replace("Ellipsis", "...")
    TARGET.write_text(text)
    sys.stdout.write(f"{TARGET.name}: {len(apis)} APIs, {len(text)} characters\n")


if __name__ == "__main__":
    main()
