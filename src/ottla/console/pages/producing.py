"""Produce a record: a form, what will be written with the command that does the same, and the writing."""

from __future__ import annotations

import base64
import binascii

from starlette.requests import Request

from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.console.actions import Field, Form, Plan, Values, action
from ottla.console.render import part, plural, with_query
from ottla.console.state import access_of
from ottla.console.views.commands import about
from ottla.console.views.paging import whole
from ottla.console.views.records import LONGEST_COMMAND, Row, produce_line
from ottla.records import Headers

KEY_KINDS = (("auto", "text, or null if it is empty"), ("text", "text, also if it is empty"), ("base64", "base64"))
VALUE_KINDS = (("text", "text"), ("base64", "base64"), ("null", "null: a tombstone"))


class BadRecord(ValueError):
    """A form that is no record; the text says what to change."""


async def produce(request: Request, values: Values) -> Plan | Form:
    topic = request.path_params["topic"]
    access = access_of(request)
    info = await access.admin.cluster.topic(topic)
    back = f"/topics/{part(topic)}/records"
    if "value" not in values or values.get("edit"):
        return _form(topic, values, back)
    try:
        key = _key(values)
        value = _value(values)
        headers = _headers(values.get("headers", ""))
        partition = _partition(values.get("partition", ""), len(info.partitions))
    except BadRecord as error:
        return _form(topic, values, back, str(error))

    async def do() -> str:
        async with AsyncProducer({**access.config, "acks": "all", "delivery.timeout.ms": 15_000, **LARGE}) as producer:
            written = await producer.send_and_wait(topic, value, key, partition, None, headers)
        return f"Wrote the record to partition {written.partition} of {topic} at offset {written.offset}."

    place = [] if partition is None else ["--partition", str(partition)]
    effects = [f"One record is written to {topic}, {_where(partition, key)}.", *_told(key, value)]
    return Plan(
        f"Produce a record to {topic}",
        effects,
        about(["produce"], topic, "--json", *place),
        do,
        button="Produce",
        back=back,
        input=produce_line(key, value, headers),
    )


LARGE = {"max.request.size": 64 * 1024 * 1024, "request.timeout.ms": 10_000, "linger.ms": 0}


def _where(partition: int | None, key: bytes | None) -> str:
    if partition is not None:
        return f"to partition {partition}"
    return "to any partition" if key is None else "to the partition of its key"


def _told(key: bytes | None, value: bytes | None) -> list[str]:
    told = ["The key is null." if key is None else f"The key has {plural(len(key), 'byte')}."]
    if value is not None:
        return [*told, f"The value has {plural(len(value), 'byte')}."]
    return [*told, "The value is null: a compacted topic deletes the older records with this key."]


def _form(topic: str, values: Values, back: str, problem: str | None = None) -> Form:
    return Form(
        f"Produce a record to {topic}",
        [
            Field("key", "Key", values.get("key", "")),
            Field("key_as", "The key is", values.get("key_as", "auto"), "select", options=KEY_KINDS),
            Field("value", "Value", values.get("value", ""), "textarea", placeholder='{"id": 1}'),
            Field("value_as", "The value is", values.get("value_as", "text"), "select", options=VALUE_KINDS),
            Field(
                "headers",
                "Headers",
                values.get("headers", ""),
                "textarea",
                help="one on a line, as name: value",
                placeholder="trace: abc",
            ),
            Field("partition", "Partition", values.get("partition", ""), "number", help="empty: chosen by the key"),
        ],
        problem,
        back=back,
    )


def _key(values: Values) -> bytes | None:
    kind, text = values.get("key_as", "auto"), values.get("key", "")
    if kind == "base64":
        return _base64("key", text)
    return None if kind == "auto" and not text else text.encode("utf-8", "surrogateescape")


def _value(values: Values) -> bytes | None:
    kind, text = values.get("value_as", "text"), values["value"]
    if kind == "null":
        if text:
            raise BadRecord("the value is not empty: remove it, or do not choose null")
        return None
    # Browsers send the end of a line as two characters.
    return _base64("value", text) if kind == "base64" else text.replace("\r\n", "\n").encode("utf-8", "surrogateescape")


def _base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BadRecord(f"the {name} is not base64") from None


def _headers(text: str) -> Headers:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon:
            raise BadRecord(f"line {number} of the headers has no colon: write name: value")
        found.append((name.strip(), value.strip().encode("utf-8", "surrogateescape")))
    return tuple(found)


def _partition(text: str, count: int) -> int | None:
    if not text.strip():
        return None
    found = whole(text)
    if found is None or found >= count:
        raise BadRecord(f"there is no partition {text.strip()[:20]}: the topic has 0 to {count - 1}")
    return found


def again(topic: str, row: Row) -> str | None:
    """The address of the form with the content of a record; None if it is too large, or if headers are not text."""
    size = len(row.key or b"") + max(row.value_size, 0) + sum(len(value or b"") for _, value in row.headers)
    if row.marker or size > LONGEST_COMMAND // 20:
        return None
    lines = []
    for name, content in row.headers:
        shown = _text(content)
        if shown is None or not (name + shown).isprintable() or name.strip() != name or shown.strip() != shown:
            return None
        lines.append(f"{name}: {shown}")
    key, value = _text(row.key), _text(row.value)
    given = {
        "key": key if key is not None else base64.b64encode(row.key or b"").decode(),
        "key_as": "auto" if row.key is None else "text" if key is not None else "base64",
        "value": value if value is not None else base64.b64encode(row.value or b"").decode(),
        "value_as": "null" if row.value is None else "text" if value is not None else "base64",
        "headers": "\n".join(lines),
        "partition": "",
        "edit": "1",
    }
    return with_query(f"/topics/{part(topic)}/produce", **given)


def _text(data: bytes | None) -> str | None:
    """Text that a form can have unchanged."""
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError:
        return None
    return text if all(letter.isprintable() or letter == "\n" for letter in text) else None


routes = [action("/topics/{topic:name}/produce", produce)]
