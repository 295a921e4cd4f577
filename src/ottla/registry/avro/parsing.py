"""Read an Avro schema into nodes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from ottla.registry.errors import InvalidSchema

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "enum", "fixed"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = {
    "record": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "error": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "enum": {"type", "name", "namespace", "doc", "symbols", "aliases", "default"},
    "fixed": {"type", "name", "namespace", "doc", "size", "aliases"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_FIELD = {"name", "type", "doc", "default", "order", "aliases"}
_DEEPEST = 100


@dataclass(slots=True, eq=False)
class Node:
    """A type. `name` is the full name of a named type; `inside` are items, values or the branches of a union."""

    kind: str
    name: str = ""
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    fields: list[Field] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    inside: list[Node] = field(default_factory=list)
    others: dict[str, Any] = field(default_factory=dict)
    """Attributes that Avro does not define, and logical types."""

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record."""

    name: str
    type: Node
    doc: str | None = None
    default: tuple[Any] | tuple[()] = ()
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    others: dict[str, Any] = field(default_factory=dict)


class Reader:
    """Reads schemas that may use the named types of those read before."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}

    def read(self, text: str) -> Node:
        """The schema in a JSON text; as in Avro for Java, a bare name such as ``string`` is one too."""
        try:
            found = json.loads(text)
        except RecursionError:
            raise InvalidSchema("the schema is nested too deeply") from None
        except ValueError as error:
            if text.strip() not in PRIMITIVES:
                raise InvalidSchema(f"the schema is not JSON: {error}") from None
            found = text.strip()
        return self._node(found, "", 0)

    def _node(self, given: Any, namespace: str, depth: int) -> Node:
        if depth > _DEEPEST:
            raise InvalidSchema("the schema is nested too deeply")
        if isinstance(given, str):
            return self._named(given, namespace)
        if isinstance(given, list):
            return self._union([self._node(one, namespace, depth + 1) for one in given])
        if not isinstance(given, dict):
            raise InvalidSchema(f"a type is a name, an object or an array, not {json.dumps(given)}")
        kind = given.get("type")
        if isinstance(kind, dict | list):
            return self._node(kind, namespace, depth + 1)
        if not isinstance(kind, str):
            raise InvalidSchema(f'a type has no "type": {_shown(given)}')
        others = {key: value for key, value in given.items() if key not in _RESERVED.get(kind, {"type"})}
        if kind in PRIMITIVES:
            return Node(kind, others=others)
        if kind == "array" or kind == "map":
            part = "items" if kind == "array" else "values"
            if part not in given:
                raise InvalidSchema(f'{kind} has no "{part}": {_shown(given)}')
            return Node(kind, inside=[self._node(given[part], namespace, depth + 1)], others=others)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(kind, given, namespace, depth, others)
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> Node:
        if name in PRIMITIVES:
            return Node(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise InvalidSchema(f"undefined name: {name!r}")
        return found

    def _union(self, branches: list[Node]) -> Node:
        seen: set[str] = set()
        for one in branches:
            if one.kind == "union":
                raise InvalidSchema("a union contains a union")
            key = one.name or one.kind
            if key in seen:
                raise InvalidSchema(f"a union contains {key} twice")
            seen.add(key)
        return Node("union", inside=branches)

    def _definition(self, kind: str, given: dict[str, Any], namespace: str, depth: int, others: dict[str, Any]) -> Node:
        name = given.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidSchema(f"{kind} has no name: {_shown(given)}")
        space = given.get("namespace", namespace)
        if not isinstance(space, str):
            raise InvalidSchema(f"the namespace of {kind} {name} is not a text")
        full = name if "." in name or not space else f"{space}.{name}"
        if not all(map(_NAME.fullmatch, full.split("."))):
            raise InvalidSchema(f"{full!r} is not a name: use letters, digits and _, and begin with a letter")
        if full.rpartition(".")[2] in PRIMITIVES:
            raise InvalidSchema(f"{full!r} is the name of a primitive type")
        if full in self.names:
            raise InvalidSchema(f"{full} is defined twice")
        node = Node("record" if kind == "error" else kind, full, doc=_text(given, "doc"), others=others)
        inner = node.namespace
        node.aliases = tuple(one if "." in one or not inner else f"{inner}.{one}" for one in _texts(given, "aliases"))
        self.names[full] = node
        if kind == "enum":
            self._enum(node, given)
        elif kind == "fixed":
            size = given.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise InvalidSchema(f"fixed {full} has no size in bytes")
            node.size = size
        else:
            fields = given.get("fields")
            if not isinstance(fields, list):
                raise InvalidSchema(f"record {full} has no fields")
            node.fields = [self._field(one, node, depth) for one in fields]
            _distinct([one.name for one in node.fields], f"record {full} has the field")
        return node

    def _enum(self, node: Node, given: dict[str, Any]) -> None:
        if not isinstance(given.get("symbols"), list):
            raise InvalidSchema(f"enum {node.name} has no symbols")
        node.symbols = tuple(_texts(given, "symbols"))
        for symbol in node.symbols:
            if not _NAME.fullmatch(symbol):
                raise InvalidSchema(f"enum {node.name}: {symbol!r} is not a name")
        _distinct(node.symbols, f"enum {node.name} has the symbol")
        node.default = _text(given, "default")
        if node.default is not None and node.default not in node.symbols:
            raise InvalidSchema(f"enum {node.name}: the default {node.default!r} is not a symbol")

    def _field(self, given: Any, record: Node, depth: int) -> Field:
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise InvalidSchema(f"record {record.name} has a field without a name: {_shown(given)}")
        name = given["name"]
        if not _NAME.fullmatch(name):
            raise InvalidSchema(f"record {record.name}: {name!r} is not the name of a field")
        if "type" not in given:
            raise InvalidSchema(f"record {record.name}: field {name} has no type")
        order = given.get("order", "ascending")
        if order not in ("ascending", "descending", "ignore"):
            raise InvalidSchema(f"record {record.name}: field {name}: order is ascending, descending or ignore")
        return Field(
            name,
            self._node(given["type"], record.namespace, depth + 1),
            doc=_text(given, "doc"),
            default=(given["default"],) if "default" in given else (),
            order=order,
            aliases=tuple(_texts(given, "aliases")),
            others={key: value for key, value in given.items() if key not in _FIELD},
        )


def _text(given: dict[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidSchema(f"{key} is not a text: {_shown(value)}")
    return value


def _texts(given: dict[str, Any], key: str) -> list[str]:
    value = given.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidSchema(f"{key} is not a list of names: {_shown(value)}")
    return value


def _distinct(names: Any, what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidSchema(f"{what} {name} twice")
        seen.add(name)


def _shown(given: Any) -> str:
    text = json.dumps(given)
    return text if len(text) <= 80 else f"{text[:79]}…"
