"""Both kernels of the codec give the same results: for all kinds of messages, damaged bytes and wrong values."""

from __future__ import annotations

import struct
from random import Random
from typing import Any
from uuid import UUID

import pytest
from codec_twins import CODECS, TWINS
from hypothesis import given, settings
from hypothesis import strategies as st
from test_codec_against_kio import MESSAGES, message_for

from ottla.protocol import _fields, _schemas
from ottla.protocol._fields import Buffer, Field

pytestmark = pytest.mark.skipif(len(TWINS) < 2, reason="the compiled twin is not built")
BROKEN = (struct.error, IndexError, ValueError, OverflowError)
INT64 = 2**63
PARTS = {"request": 4, "response": 5}
#: Messages are not drawn value by value, which takes ten times as long.
SEEDS = st.integers(0, 2**32 - 1)


class Elsewhere:
    """Records that are sent without a copy."""

    def __init__(self, length: int) -> None:
        self.length = length


def field(
    name: str, type_: str, *, array: bool = False, nullable: bool = False, tag: int | None = None, default: Any = ...,
    children: tuple[Any, ...] | None = None, first: int = 0, last: int = 3,
) -> Field:  # fmt: skip
    return Field(name, first, last, type_, array, nullable, tag, default, children)


TYPES = ["int8", "int16", "int32", "int64", "uint16", "uint32", "bool", "float64", "uuid", "string", "bytes", "struct"]
INNER = (field("id", "int32"), field("text", "string", nullable=True, default=None), field("late", "int8", first=2))


@st.composite
def schemas(draw: st.DrawFn) -> list[Field]:
    """Fields of every kind in every position, including some that no API has."""
    fields = []
    for number in range(draw(st.integers(0, 6))):
        type_ = draw(st.sampled_from([*TYPES, "records"]))
        array = type_ != "records" and draw(st.booleans())
        nullable = draw(st.booleans()) and (array or type_ in ("string", "bytes", "records", "struct"))
        tag = draw(st.none() | st.just(number * 70)) if type_ != "records" else None
        first = draw(st.integers(0, 2))
        children = INNER if type_ == "struct" else None
        fields.append(
            field(f"f{number}", type_, array=array, nullable=nullable, tag=tag, first=first, children=children)
        )
    return fields


def plain(value: Any) -> Any:
    """A comparable form, including types and the bits of floats."""
    if isinstance(value, _fields.Struct):
        return type(value), [plain(getattr(value, name)) for name in value.__slots__]
    if isinstance(value, list | tuple):
        return type(value), [plain(item) for item in value]
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, memoryview):
        return memoryview, bytes(value)
    if isinstance(value, UUID):
        return UUID, value.int, value.is_safe
    return type(value), value


def read(decode: Any, data: bytes) -> Any:
    """A message, or that it is invalid, and why if it is not just too short."""
    # Memory of its own, that ends where the bytes end.
    buffer = memoryview(bytearray(data))
    try:
        message, end = decode(buffer, 0, len(buffer))
    except (struct.error, IndexError):
        return "too short"
    except (ValueError, OverflowError) as error:
        return str(error)
    return plain(message), end


def assert_read_alike(schema: tuple[Any, ...], all_data: list[bytes], max_items: int | None = None) -> None:
    decoders = [twin.compile_decoder(*schema, max_items) for twin in TWINS.values()]
    for data in all_data:
        first, *others = (read(decode, data) for decode in decoders)
        assert all(other == first for other in others)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes, cut or with some of them changed."""
    out = bytearray(data)
    if draw(st.booleans()):
        del out[draw(st.integers(0, len(out))) :]
    for _ in range(draw(st.integers(0, 3)) if out else 0):
        spot = draw(st.integers(0, len(out) - 1))
        change = st.integers(0, 7).map(lambda bit: out[spot] ^ 1 << bit)  # noqa: B023
        out[spot] = draw(change | st.sampled_from([0, 1, 127, 128, 255]))
    return bytes(out)


@settings(max_examples=200, deadline=None)
@given(st.data(), schemas(), st.integers(0, 3), st.booleans(), st.none() | st.integers(0, 12))
def test_any_schema(data: st.DataObject, fields: list[Field], version: int, flexible: bool, limit: int | None) -> None:
    if not flexible:
        fields = [each._replace(tag=None) for each in fields]
    schema = ("made_up", fields, version, flexible)
    message = message_for(fields, version, Random(data.draw(SEEDS)))
    first, *others = (written(twin, schema, message) for twin in TWINS.values())
    assert all(other == first for other in others)
    assert_read_alike(schema, [first, data.draw(damaged(first)), data.draw(st.binary(max_size=60))], limit)


def written(twin: Any, schema: tuple[Any, ...], message: dict[str, Any]) -> bytes:
    out = Buffer(b"before")
    twin.compile_encoder(*schema)(out, message)
    assert twin.compile_framer(*schema)(b"head", message)[8:] == out[6:]
    return bytes(out[6:])


@settings(max_examples=250, deadline=None)
@given(st.data(), st.sampled_from(MESSAGES))
def test_messages_of_kafka(data: st.DataObject, which: tuple[int, int, str]) -> None:
    key, version, part = which
    entry = _schemas.APIS[key]
    fields = [Field(*each) for each in entry[PARTS[part]]]
    schema = (f"{entry[0]}_{part}", fields, version, version >= entry[3])
    message = message_for(fields, version, Random(data.draw(SEEDS)))
    first, *others = (written(twin, schema, message) for twin in TWINS.values())
    assert all(other == first for other in others)
    assert_read_alike(schema, [first, *(data.draw(damaged(first)) for _ in range(4))])


HEADERS = st.builds(
    lambda api_key, version, size, rest: struct.pack(">hhih", api_key, version, 7, size) + rest,
    st.sampled_from([*_schemas.APIS, -1, 2**15 - 1]),
    st.integers(-1, 20),
    st.integers(-2, 5),
    st.binary(max_size=12),
)


@given(st.binary(max_size=60) | HEADERS)
def test_the_header_of_a_request(data: bytes) -> None:
    def header(codec: Any) -> Any:
        try:
            return plain(codec.decode_request_header(data))
        except codec.DecodeError:
            return "broken"

    first, *others = map(header, CODECS.values())
    assert all(other == first for other in others)


FIXED = ("int8", "int16", "int32", "int64", "uint16", "uint32", "bool", "float64")
VALUES = [
    None,
    -1,
    2**7,
    -(2**7) - 1,
    2**15,
    2**31,
    2**32,
    INT64,
    -INT64 - 1,
    1.5,
    "text",
    b"bytes",
    "\ud800",
    True,
    [],
]


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("type_", [*FIXED, "string"])
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_are_taken_and_refused_alike(type_: str, value: Any, array: bool) -> None:
    schema = ("made_up", [field("value", type_, array=array)], 0, True)

    def outcome(twin: Any) -> Any:
        try:
            return written(twin, schema, {"value": [value] if array else value})
        except (struct.error, ValueError, AttributeError) as error:
            return type(error)

    first, *others = map(outcome, TWINS.values())
    assert all(other == first for other in others)


@pytest.mark.parametrize("twin", TWINS.values(), ids=list(TWINS))
class TestEachTwin:
    def test_records_that_lie_elsewhere_become_splices(self, twin: Any) -> None:
        fields = [field("before", "string"), field("records", "records", nullable=True), field("after", "int16")]
        first, second = Elsewhere(1000), Elsewhere(0)
        items = [{"before": "a", "records": each, "after": 1} for each in (first, b"here", second, None)]
        schema = ("made_up", [field("items", "struct", array=True, children=tuple(fields))], 0, True)
        frame = twin.compile_framer(*schema)(b"head", {"items": items})
        assert [value for _, value in frame.splices] == [first, second]
        assert [frame[position - 2 : position] for position, _ in frame.splices] == [b"\xe9\x07", b"a\1"]
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4 + 1000
        appended = Buffer(b"head")
        twin.compile_encoder(*schema)(appended, {"items": items})
        assert [position + 4 for position, _ in appended.splices] == [position for position, _ in frame.splices]

    def test_a_large_message(self, twin: Any) -> None:
        schema = ("made_up", [field("parts", "bytes", array=True), field("tail", "bytes", tag=3)], 0, True)
        message = {"parts": [bytes([number]) * number * 37 for number in range(256)], "tail": b"x" * 100_000}
        out = Buffer()
        twin.compile_encoder(*schema)(out, message)
        decoded, end = twin.compile_decoder(*schema)(out, 0, len(out))
        assert (decoded.parts, decoded.tail, end) == (message["parts"], message["tail"], len(out))

    def test_records_are_a_slice_of_the_buffer(self, twin: Any) -> None:
        decode = twin.compile_decoder("made_up", [field("records", "records")], 0, False)
        buffer = bytearray(b"\0\0\0\3abc")
        records = decode(memoryview(buffer), 0, 7)[0].records
        buffer[4:] = b"xyz"
        assert records == b"xyz"

    @pytest.mark.parametrize(("position", "end"), [(8, 4), (4, 9), (9, 9), (2**40, 2**40)])
    def test_nothing_is_read_outside_of_the_buffer(self, twin: Any, position: int, end: int) -> None:
        decode = twin.compile_decoder("made_up", [field("value", "int64"), field("text", "string")], 0, True)
        with pytest.raises(BROKEN):
            decode(bytes(8), position, end)

    def test_a_message_with_unknown_fields_is_refused_in_tests(self, twin: Any) -> None:
        encode = twin.compile_encoder("made_up", [field("value", "int8")], 0, True)
        with pytest.raises(KeyError, match="made_up has no field"):
            encode(Buffer(), {"value": 1, "valeu": 2})

    def test_a_message_that_lacks_a_field_is_refused(self, twin: Any) -> None:
        encode = twin.compile_encoder("made_up", [field("value", "int8")], 0, True)
        out = Buffer(b"before")
        with pytest.raises(KeyError, match="value"):
            encode(out, {})
        assert out == b"before"
