"""Every version of every message: what we write, kio reads; what kio writes, we read; and the table is kio's.

Each with both twins of the codec."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from codec_twins import CODECS
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.protocol import _schemas
from ottla.protocol._fields import Field, Struct, children_of, present

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MESSAGES = [
    (key, version, part)
    for key, entry in _schemas.APIS.items()
    for version in range(entry[1], entry[2] + 1)
    for part in ("request", "response")
]
IDS = [f"{_schemas.APIS[key][0]}-{part}-v{version}" for key, version, part in MESSAGES]
INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32}
#: Of one to four bytes in UTF-8.
CHARACTERS = "a\x00ß\u07ff€\uffff🐍"
ERROR_CODES = [int(code) for code in ErrorCode]


def generator() -> ModuleType:
    path = Path(__file__).parents[3] / "tools" / "generate_schemas.py"
    spec = importlib.util.spec_from_file_location("generate_schemas", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def value_for(field: Field, version: int, random: Random) -> Any:
    """A value of a field; the smallest and largest ones are as frequent as all others."""
    if field.nullable and random.random() < 0.3:
        return None
    if field.array:
        return [_item(field, version, random) for _ in range(random.randrange(3))]
    return _item(field, version, random)


def _item(field: Field, version: int, random: Random) -> Any:
    if field.type == "struct":
        return message_for(children_of(field), version, random)
    if field.type in INTEGERS:
        bits = INTEGERS[field.type]
        low, high = 0 if field.type.startswith("u") else -(2**bits), 2**bits - 1
        # kio turns these into enums and times, which do not have every value.
        if "error_code" in field.name:
            return random.choice(ERROR_CODES)
        if field.type in ("int32", "int64") and not field.array:
            low, high = 0, 2**31 - 1
        return random.choice([low, high, max(low, -1), 1, random.randint(low, high)])
    if field.type == "string":
        return "".join(random.choices(CHARACTERS, k=random.choice([0, 1, 9, 140])))
    if field.type in ("bytes", "records"):
        return random.randbytes(random.choice([0, 1, 127, 128, 200]))
    if field.type == "bool":
        return random.random() < 0.5
    if field.type == "uuid":
        return UUID(int=random.choice([1, 2**128 - 1, random.getrandbits(128)]))
    assert field.type == "float64"
    return random.choice([0.0, -0.0, 5e-324, -1.5e308, math.inf, random.random()])


def message_for(fields: list[Field], version: int, random: Random) -> dict[str, Any]:
    return {field.name: value_for(field, version, random) for field in present(fields, version)}


def plain(value: Any) -> Any:
    """Reduce a kio entity or one of our structs to dicts, lists and plain values."""
    names: Any = value.__slots__ if isinstance(value, Struct) else None
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return round(value / timedelta(milliseconds=1))
    if isinstance(value, datetime):
        return round((value - EPOCH) / timedelta(milliseconds=1))
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, bool | float | str | bytes) or value is None:
        return value
    return int(value) if isinstance(value, int) else value


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Compare the fields that the version has; a struct of ours also has those of other versions."""
    for name, value in theirs.items():
        if isinstance(value, dict):
            same(ours[name] or {}, value) if ours[name] is not None else None
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            assert len(ours[name]) == len(value)
            for one, other in zip(ours[name], value, strict=True):
                same(one, other)
        elif value is None:
            assert ours[name] in (None, -1)  # kio reads a time of -1 as None
        else:
            assert ours[name] == value, name


@pytest.mark.parametrize(("key", "version", "part"), MESSAGES, ids=IDS)
def test_every_version_is_read_and_written_as_kio_does(key: int, version: int, part: str) -> None:
    entry = _schemas.APIS[key]
    fields = [Field(*field) for field in entry[4 if part == "request" else 5]]
    cls = load_entity_schema(entry[0], version, EntityType[part])

    def compare(codec: Any, message: dict[str, Any]) -> None:
        if part == "request":
            frame = codec.encode_request(key, version, 5, "client", message)[4:]
            header = codec.decode_request_header(frame)
            assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (
                key, version, 5, "client",
            )  # fmt: skip
            body = bytes(frame[header.body :])
            ours = codec.decode_request_body(key, version, frame, header.body)
        else:
            frame = codec.encode_response(key, version, 5, message)[4:]
            body = bytes(frame[5 if version >= entry[3] and key != 18 else 4 :])
            ours = codec.decode_response(key, version, frame)
        theirs, size = entity_reader(cls)(body, 0)
        assert size == len(body)
        same(plain(ours), plain(theirs))
        written = io.BytesIO()
        entity_writer(cls)(written, theirs)
        assert written.getvalue() == body

    for seed in range(6):
        message = message_for(fields, version, Random(seed))
        for codec in CODECS.values():
            compare(codec, message)


def test_the_schema_table_is_what_the_generator_makes_of_the_installed_kio(tmp_path: Path) -> None:
    module = generator()
    fresh = tmp_path / "_schemas.py"
    module.TARGET = fresh
    module.main()
    assert fresh.read_text() == Path(_schemas.__file__).read_text()
