"""Schemas without Spark: parse DDL, Spark's JSON and Avro schemas, and write DDL.

They are used before Spark starts, to check the declaration; in the query, to find missing values; and in workers, to
find out why a record is broken. Spark parses the DDL again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.suggestions import did_you_mean

_SAME = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_PLAIN = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "char", "varchar"),
    *("binary", "date", "timestamp", "timestamp_ntz", "variant", "void", "interval"),
)
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")|([A-Za-z0-9_]+)|(.))", re.S)


class SchemaError(ValueError):
    """An invalid schema."""


class SchemaUnreachable(SchemaError):
    """The schema registry does not answer."""


@dataclass(frozen=True, slots=True)
class Type:
    """`name` is Spark's simple name; `inside` has the fields of a struct, the element, or key and value of a map."""

    name: str
    inside: tuple[Field, ...] = ()
    numbers: tuple[int, ...] = ()

    def ddl(self) -> str:
        if self.name == "struct":
            return f"struct<{', '.join(f'{one.quoted}: {one.type.ddl()}' for one in self.inside)}>"
        if self.inside:
            return f"{self.name}<{', '.join(one.type.ddl() for one in self.inside)}>"
        return f"{self.name}({', '.join(map(str, self.numbers))})" if self.numbers else self.name


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: Type
    required: bool = False

    @property
    def quoted(self) -> str:
        return quoted(self.name)


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a value."""

    fields: tuple[Field, ...]

    def ddl(self) -> str:
        """Spark's DDL without NOT NULL: missing values are found later."""
        return ", ".join(f"{one.quoted} {one.type.ddl()}" for one in self.fields)

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.fields]

    def column(self, name: str) -> Field | None:
        """Find a column; like in Spark, case is ignored."""
        return next((one for one in self.fields if one.name.lower() == name.lower()), None)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# ── Spark's DDL ──────────────────────────────────────────────────────────────────────────────────────────────────────


def from_ddl(text: str) -> Schema:
    """Parse `id BIGINT NOT NULL, lines ARRAY<STRUCT<item: STRING>>`, or the same in `STRUCT<…>`."""
    parser = _Ddl(text)
    fields = parser.fields(until="")
    if len(fields) == 1 and fields[0].type.name == "struct" and not fields[0].name:
        fields = fields[0].type.inside
    return Schema(_distinct(fields))


class _Ddl:
    def __init__(self, text: str) -> None:
        self._tokens = [found for found in _TOKEN.findall(text) if any(found)]
        self._tokens = [found for found in self._tokens if not found[3].isspace()]
        self._at = 0

    def fields(self, *, until: str) -> tuple[Field, ...]:
        found: list[Field] = []
        if self._peek().lower() == "struct" and self._peek(1) == "<" and not until:
            self._at += 1
            found = [Field("", self._struct())]
        else:
            while self._peek() != until or not found:
                if self._peek() == until:
                    raise SchemaError("the schema has no columns: write id BIGINT NOT NULL, total DOUBLE")
                found.append(self._field())
                if self._peek() != ",":
                    break
                self._at += 1
        if self._peek() != until:
            raise SchemaError(f"unexpected {self._shown()}: separate columns with commas")
        return tuple(found)

    def _field(self) -> Field:
        name = self._name()
        if self._peek() == ":":
            self._at += 1
        kind = self._type(name)
        required = False
        while self._peek().lower() in ("not", "comment", "default"):
            word = self._next().lower()
            if word == "not":
                if self._next().lower() != "null":
                    raise SchemaError(f"expected NOT NULL after column {name}")
                required = True
            else:
                self._next()
        return Field(name, kind, required)

    def _name(self) -> str:
        back, text, word, _sign = self._tokens[self._at] if self._at < len(self._tokens) else ("", "", "", "")
        if back:
            self._at += 1
            return back[1:-1].replace("``", "`")
        if not word or text:
            raise SchemaError(f"expected a column name before {self._shown()}; quote special names with backticks")
        self._at += 1
        return word

    def _type(self, column: str) -> Type:
        if not self._peek() or not self._tokens[self._at][2]:
            raise SchemaError(f"column {column} has no type: found {self._shown()}")
        word = self._next().lower()
        word = _SAME.get(word, word)
        if word == "struct":
            return self._struct()
        if word in ("array", "map"):
            self._expect("<", word)
            inside = [Field("element" if word == "array" else "key", self._type(column))]
            if word == "map":
                self._expect(",", word)
                inside.append(Field("value", self._type(column)))
            self._expect(">", word)
            return Type(word, tuple(inside))
        if word not in _PLAIN:
            known = (*_PLAIN, *_SAME, "array", "map", "struct")
            raise SchemaError(f"column {column} has the unknown type {word}.{did_you_mean(word, known)}")
        while word == "interval" and self._peek().lower() in (*_PARTS, "to"):
            self._at += 1
        return Type(word, (), self._numbers())

    def _struct(self) -> Type:
        self._expect("<", "struct")
        inside = self.fields(until=">")
        self._at += 1
        return Type("struct", _distinct(inside))

    def _numbers(self) -> tuple[int, ...]:
        if self._peek() != "(":
            return ()
        self._at += 1
        numbers = []
        while self._peek() != ")":
            text = self._next()
            if text.isdecimal():
                numbers.append(int(text))
            elif text != ",":
                raise SchemaError(f"expected a number in parentheses, not {text!r}")
        self._at += 1
        return tuple(numbers)

    def _expect(self, sign: str, after: str) -> None:
        if self._peek() != sign:
            raise SchemaError(
                f"{after} requires {sign!r}, found {self._shown()}: write array<string> or map<string, int>"
            )
        self._at += 1

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return "".join(self._tokens[at]) if at < len(self._tokens) else ""

    def _next(self) -> str:
        text = self._peek()
        if not text:
            raise SchemaError("the schema ends too early")
        self._at += 1
        return text

    def _shown(self) -> str:
        return repr(self._peek()) if self._peek() else "the end"


_PARTS = ("year", "month", "day", "hour", "minute", "second")


def _distinct(fields: Iterable[Field]) -> tuple[Field, ...]:
    seen: set[str] = set()
    found = tuple(fields)
    for one in found:
        if one.name.lower() in seen:
            raise SchemaError(f"column {one.name} appears twice (case is ignored)")
        seen.add(one.name.lower())
    return found


# ── Spark's JSON and Avro ────────────────────────────────────────────────────────────────────────────────────────────


def from_spark_json(given: Any) -> Schema:
    """Parse the output of `DataFrame.schema.json()`."""
    if not isinstance(given, Mapping) or given.get("type") != "struct":
        raise SchemaError('not the output of df.schema.json(): expected {"type": "struct", "fields": […]}')
    return Schema(_distinct(_spark_fields(given)))


def _spark_fields(given: Mapping[str, Any]) -> Iterator[Field]:
    for one in given.get("fields", ()):
        yield Field(str(one["name"]), _spark_type(one["type"], str(one["name"])), not one.get("nullable", True))


def _spark_type(given: Any, column: str) -> Type:
    if isinstance(given, str):
        return _Ddl(f"x {given}").fields(until="")[0].type
    if given.get("type") == "struct":
        return Type("struct", tuple(_spark_fields(given)))
    if given.get("type") == "array":
        return Type("array", (Field("element", _spark_type(given["elementType"], column)),))
    if given.get("type") == "map":
        key, value = _spark_type(given["keyType"], column), _spark_type(given["valueType"], column)
        return Type("map", (Field("key", key), Field("value", value)))
    raise SchemaError(f"column {column} has an unknown type: {given!r}")


_AVRO = {"null": "void", "int": "int", "long": "bigint", "bytes": "binary", "fixed": "binary", "enum": "string"}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "uuid": "string",
}
#: fastavro decodes these to objects that Spark columns cannot hold.
_NO_COLUMN = ("time-millis", "time-micros", "duration")


def from_avro(given: Any) -> Schema:
    """Parse an Avro record; fields without null are required."""
    if not isinstance(given, Mapping) or given.get("type") != "record":
        raise SchemaError('the Avro schema must be a record: {"type": "record", "name": "…", "fields": […]}')
    found = _avro_type(given, "the value", {})
    return Schema(_distinct(found.inside))


def _avro_type(given: Any, column: str, named: dict[str, Type]) -> Type:
    if isinstance(given, list):
        return _avro_union([one for one in given if one != "null"], column, named)
    if isinstance(given, str):
        if (known := named.get(given.rsplit(".")[-1])) is not None:
            return known
        if given in ("boolean", "float", "double", "string") or given in _AVRO:
            return Type(_AVRO.get(given, given))
        raise SchemaError(f"field {column} has the unknown type {given}: it is neither built in nor defined earlier")
    kind, logical = given.get("type"), given.get("logicalType")
    if logical in _NO_COLUMN:
        raise SchemaError(f"field {column} has the logical type {logical}, which Spark does not support")
    found = _avro_complex(given, kind, column, named)
    if found is None:
        found = _avro_type(kind, column, named)
        if logical == "decimal":
            found = Type("decimal", (), (int(given["precision"]), int(given.get("scale", 0))))
        elif logical in _LOGICAL:
            found = Type(_LOGICAL[logical])
    if "name" in given and kind in ("record", "enum", "fixed"):
        named[given["name"].rsplit(".")[-1]] = found
    return found


def _avro_complex(given: Mapping[str, Any], kind: Any, column: str, named: dict[str, Type]) -> Type | None:
    if kind == "record":
        fields = []
        for one in given["fields"]:
            inner = one["type"]
            nullable = inner == "null" or (isinstance(inner, list) and "null" in inner)
            fields.append(Field(one["name"], _avro_type(inner, one["name"], named), not nullable))
        return Type("struct", tuple(fields))
    if kind == "array":
        return Type("array", (Field("element", _avro_type(given["items"], column, named)),))
    if kind == "map":
        return Type("map", (Field("key", Type("string")), Field("value", _avro_type(given["values"], column, named))))
    if kind in ("enum", "fixed") and given.get("logicalType") != "decimal":
        return Type(_AVRO[kind])
    return None


def _avro_union(given: list[Any], column: str, named: dict[str, Type]) -> Type:
    types = list(dict.fromkeys(_avro_type(one, column, named) for one in given))
    names = {one.name for one in types}
    if len(types) == 1:
        return types[0]
    if names == {"int", "bigint"}:
        return Type("bigint")
    if names == {"float", "double"}:
        return Type("double")
    raise SchemaError(
        f"field {column} is a union of {', '.join(sorted(names)) or 'nothing'}: a column can have only one type"
    )


def from_file(path: Path) -> Schema:
    """Parse a file: .avsc is Avro, .json is Spark's JSON, anything else is DDL."""
    text = path.read_text()
    if path.suffix not in (".avsc", ".json"):
        return from_ddl(text)
    try:
        given = json.loads(text)
    except ValueError as error:
        raise SchemaError(f"invalid JSON: {error}") from None
    try:
        return from_avro(given) if path.suffix == ".avsc" else from_spark_json(given)
    except (KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"missing or invalid entry: {error}") from None
