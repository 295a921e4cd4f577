"""Decide whether a JSON Schema accepts all that another accepted, by the rules of Confluent's registry.

The rules are strict. An object without `additionalProperties = false` may hold any other property, so a property
that is new in the schema could already be there with another type: that change is not compatible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.registry.json_schema.parsing import Document

#: The keywords of bounds, and whether a larger value accepts more.
_BOUNDS = {
    "string": {"maxLength": True, "minLength": False},
    "number": {"maximum": True, "minimum": False, "exclusiveMaximum": True, "exclusiveMinimum": False},
    "object": {"maxProperties": True, "minProperties": False},
    "array": {"maxItems": True, "minItems": False, "maxContains": True, "minContains": False},
}
_IMPLIED = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "maxProperties", "minProperties"),
    "array": ("items", "additionalItems", "prefixItems", "maxItems", "minItems", "uniqueItems", "contains"),
    "string": ("maxLength", "minLength", "pattern", "format"),
    "number": ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"),
}
_COMBINED = ("oneOf", "anyOf", "allOf")
_LIMIT = 20_000


class Part(NamedTuple):
    """A schema inside a document, without ``$ref``."""

    schema: Any
    resolver: Any

    @property
    def kind(self) -> str:
        """What kind of schema it is; ``any`` accepts everything and ``nothing`` nothing."""
        given = self.schema
        if isinstance(given, bool):
            return "any" if given else "nothing"
        for word in ("const", "enum", *_COMBINED, "not"):
            if word in given:
                return "combined" if word in _COMBINED else word
        named = given.get("type")
        if isinstance(named, list):
            return "combined" if len(named) != 1 else _type(named[0])
        if isinstance(named, str):
            return _type(named)
        return next((kind for kind, words in _IMPLIED.items() if any(word in given for word in words)), "any")

    def get(self, key: str, default: Any = None) -> Any:
        return self.schema.get(key, default) if isinstance(self.schema, dict) else default

    def inside(self, schema: Any) -> Part:
        """A schema inside this one, with its references followed."""
        resolver = self.resolver
        for _ in range(100):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                break
            schema, resolver = Document.lookup(schema["$ref"], resolver)
        return Part(schema if isinstance(schema, dict | bool) else {}, resolver)

    def criterion(self) -> str:
        return next((word for word in _COMBINED if word in self.schema), "anyOf")

    def branches(self) -> list[Part]:
        """The schemas of oneOf, anyOf, allOf or of a list of types."""
        word = next((word for word in _COMBINED if word in self.schema), None)
        if word is not None:
            return [self.inside(one) for one in self.schema[word]]
        return [Part({**self.schema, "type": one}, self.resolver) for one in self.schema["type"]]


def problems(reader: Document, writer: Document) -> list[str]:
    """Why data that `writer` accepts may not be accepted by `reader`; empty if all is."""
    new, old = Part(None, reader.resolver).inside(reader.root), Part(None, writer.resolver).inside(writer.root)
    return _Comparison().compare(old, new, "#/")


def _type(name: str) -> str:
    return "number" if name == "integer" else name


class _Comparison:
    """One comparison. A pair that is being compared already, in a recursive schema, counts as compatible."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[str]] = {}

    def compare(self, old: Part, new: Part, path: str) -> list[str]:
        key = (_key(old), _key(new))
        if key not in self._found:
            if len(self._found) > _LIMIT:
                return [_problem("SCHEMA_TOO_COMPLEX", path)]
            self._found[key] = []
            self._found[key] = list(self._compare(old, new, path))
        return self._found[key]

    def _compare(self, old: Part, new: Part, path: str) -> Iterator[str]:
        if old.kind != "combined" and new.kind == "combined":
            branches = new.branches()
            if (len(branches) == 1 or new.criterion() != "allOf") and self._any(((old, one) for one in branches), path):
                return
        elif old.kind == "combined" and new.kind != "combined":
            branches = old.branches()
            if (len(branches) == 1 or old.criterion() == "allOf") and self._any(((one, new) for one in branches), path):
                return
        if old.kind != new.kind:
            if old.kind != "nothing" and new.kind != "any":
                yield _problem("TYPE_CHANGED", path)
            return
        yield from _bounds(old, new, path)
        kinds = {
            "string": self._string,
            "number": self._number,
            "object": self._object,
            "array": self._array,
            "combined": self._combined,
            "const": self._const,
            "enum": self._enum,
            "not": self._not,
        }
        if new.kind in kinds:
            yield from kinds[new.kind](old, new, path)

    def _any(self, pairs: Iterator[tuple[Part, Part]], path: str) -> bool:
        return any(not self.compare(old, new, path) for old, new in pairs)

    def _string(self, old: Part, new: Part, path: str) -> Iterator[str]:
        if new.get("pattern") is not None and new.get("pattern") != old.get("pattern"):
            yield _problem("PATTERN_ADDED" if old.get("pattern") is None else "PATTERN_CHANGED", f"{path}pattern")

    def _number(self, old: Part, new: Part, path: str) -> Iterator[str]:
        before, after = old.get("multipleOf"), new.get("multipleOf")
        if after is not None and (before is None or _remainder(before, after)):
            yield _problem("MULTIPLE_OF_ADDED" if before is None else "MULTIPLE_OF_CHANGED", f"{path}multipleOf")
        if _is_integer(new) and not _is_integer(old):
            yield _problem("TYPE_NARROWED", path)

    def _const(self, old: Part, new: Part, path: str) -> Iterator[str]:
        if not _same(old.schema["const"], new.schema["const"]):
            yield _problem("ENUM_ARRAY_CHANGED", f"{path}const")

    def _enum(self, old: Part, new: Part, path: str) -> Iterator[str]:
        before, after = ({json.dumps(one, sort_keys=True) for one in part.schema["enum"]} for part in (old, new))
        if not before <= after:
            yield _problem("ENUM_ARRAY_NARROWED" if after <= before else "ENUM_ARRAY_CHANGED", f"{path}enum")

    def _not(self, old: Part, new: Part, path: str) -> Iterator[str]:
        # What is excluded may only become less.
        if self.compare(new.inside(new.schema["not"]), old.inside(old.schema["not"]), f"{path}not/"):
            yield _problem("NOT_TYPE_EXTENDED", f"{path}not")

    # ── objects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _object(self, old: Part, new: Part, path: str) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        required = new.get("required", [])
        for name in after:
            is_new = name in before and name in required and name not in old.get("required", [])
            if is_new and "default" not in _mapping(after[name]):
                yield _problem("REQUIRED_ATTRIBUTE_ADDED", f"{path}required/{name}")
        for name in sorted({*before, *after}):
            at = f"{path}properties/{name}"
            if name not in after:
                yield from self._removed(old.inside(before[name]), new, name, at)
            elif name not in before:
                yield from self._added(old, new, name, at)
            else:
                yield from self.compare(old.inside(before[name]), new.inside(after[name]), f"{at}/")
        yield from self._dependencies(old, new, path)
        for word in ("additionalProperties", "unevaluatedProperties"):
            yield from self._rest(old, new, word, path)

    def _removed(self, before: Part, new: Part, name: str, at: str) -> Iterator[str]:
        if _is_open(new):
            return
        rest = _partly_open(new, name)
        if rest is not None:
            if self.compare(before, rest, f"{at}/"):
                yield _problem("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at)
        elif before.kind != "nothing":
            yield _problem("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", at)

    def _added(self, old: Part, new: Part, name: str, at: str) -> Iterator[str]:
        after = new.inside(new.schema["properties"][name])
        required = name in new.get("required", []) and "default" not in _mapping(after.schema)
        if _is_open(old):
            if after.kind != "any":
                kind = "REQUIRED_PROPERTY_ADDED_TO_OPEN" if required else "PROPERTY_ADDED_TO_OPEN"
                yield _problem(f"{kind}_CONTENT_MODEL", at)
            return
        rest = _partly_open(old, name)
        if rest is not None and self.compare(rest, after, f"{at}/"):
            yield _problem("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at)
        if required:
            yield _problem("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", at)

    def _dependencies(self, old: Part, new: Part, path: str) -> Iterator[str]:
        before, after = _all_dependencies(old), _all_dependencies(new)
        for name, given in after.items():
            at = f"{path}dependencies/{name}"
            if name not in before or isinstance(given, list) != isinstance(before[name], list):
                yield _problem("DEPENDENCY_ADDED", at)
            elif isinstance(given, list):
                if not set(given) <= set(before[name]):
                    yield _problem("DEPENDENCY_ARRAY_EXTENDED", at)
            else:
                yield from self.compare(old.inside(before[name]), new.inside(given), f"{at}/")

    def _rest(self, old: Part, new: Part, word: str, path: str) -> Iterator[str]:
        """Compare what is said about all other properties or items."""
        before, after = old.inside(old.get(word, True)), new.inside(new.get(word, True))
        name = re.sub("([A-Z])", r"_\1", word).upper()
        if after.kind == "nothing" and before.kind != "nothing":
            yield _problem(f"{name}_REMOVED", f"{path}{word}")
        elif before.kind == "any" and after.kind != "any":
            yield _problem(f"{name}_NARROWED", f"{path}{word}")
        elif before.kind != "nothing":
            yield from self.compare(before, after, f"{path}{word}/")

    # ── arrays ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _array(self, old: Part, new: Part, path: str) -> Iterator[str]:
        if new.get("uniqueItems", False) and not old.get("uniqueItems", False):
            yield _problem("UNIQUE_ITEMS_ADDED", f"{path}uniqueItems")
        before, after = _items(old), _items(new)
        if not isinstance(before.first, list) and not isinstance(after.first, list):
            yield from self.compare(old.inside(before.first), new.inside(after.first), f"{path}items/")
        else:
            yield from self._tuples(old, new, path)
        if "contains" in new.schema:
            if "contains" not in old.schema:
                yield _problem("CONTAINS_ADDED", f"{path}contains")
            else:
                inside = old.inside(old.schema["contains"]), new.inside(new.schema["contains"])
                yield from self.compare(*inside, f"{path}contains/")
        yield from self._rest(old, new, "unevaluatedItems", path)

    def _tuples(self, old: Part, new: Part, path: str) -> Iterator[str]:
        before, after = _items(old), _items(new)
        count = max(len(before), len(after))
        for number in range(count):
            one, other = old.inside(before.at(number)), new.inside(after.at(number))
            yield from self.compare(one, other, f"{path}items/{number}/")
        yield from self.compare(old.inside(before.rest), new.inside(after.rest), f"{path}additionalItems/")

    # ── oneOf, anyOf, allOf ───────────────────────────────────────────────────────────────────────────────────────

    def _combined(self, old: Part, new: Part, path: str) -> Iterator[str]:
        before, after = _distinct(old.branches()), _distinct(new.branches())
        if old.criterion() != new.criterion() and not _widened(old.criterion(), new.criterion(), before, after):
            yield _problem("COMBINED_TYPE_CHANGED", path)
            return
        if len(before) < len(after) and new.criterion() == "allOf":
            yield _problem("PRODUCT_TYPE_EXTENDED", path)
        elif len(before) > len(after) and old.criterion() != "allOf":
            yield _problem("SUM_TYPE_NARROWED", path)
        edges = [
            [number for number, other in enumerate(after) if not self.compare(one, other, f"{path}{old.criterion()}/")]
            for one in before
        ]
        if _matched(edges) < min(len(before), len(after)):
            yield _problem("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path)


class _Items(NamedTuple):
    """What is said of the items of an array: one schema, or a list and the schema of the rest."""

    first: Any
    rest: Any

    def __len__(self) -> int:
        return len(self.first) if isinstance(self.first, list) else 0

    def at(self, number: int) -> Any:
        return self.first[number] if number < len(self) else self.rest


def _items(part: Part) -> _Items:
    if isinstance(part.get("prefixItems"), list):
        return _Items(part.schema["prefixItems"], part.get("items", True))
    items = part.get("items", True)
    return _Items(items, part.get("additionalItems", True) if isinstance(items, list) else items)


def _is_open(part: Part) -> bool:
    """Whether an object may have any other property."""
    rest = [part.inside(part.get(word, True)).kind for word in ("additionalProperties", "unevaluatedProperties")]
    return not part.get("patternProperties") and all(kind == "any" for kind in rest)


def _partly_open(part: Part, name: str) -> Part | None:
    """The schema for a property that is not declared; None if there must be none."""
    for pattern, schema in part.get("patternProperties", {}).items():
        try:
            if re.search(pattern, name):
                return part.inside(schema)
        except re.error:
            continue
    for word in ("additionalProperties", "unevaluatedProperties"):
        rest = part.inside(part.get(word, True))
        if rest.kind == "nothing":
            return None
        if rest.kind != "any":
            return rest
    return None


def _all_dependencies(part: Part) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in ("dependencies", "dependentRequired", "dependentSchemas"):
        found |= part.get(word, {})
    return found


def _bounds(old: Part, new: Part, path: str) -> Iterator[str]:
    for word, larger_is_wider in _BOUNDS.get(new.kind, {}).items():
        before, after = old.get(word), new.get(word)
        if not _is_number(after) or before == after:
            continue
        name = re.sub("([A-Z])", r"_\1", word).upper()
        if not _is_number(before):
            yield _problem(f"{name}_ADDED", f"{path}{word}")
        elif larger_is_wider and after < before:
            yield _problem(f"{name}_DECREASED", f"{path}{word}")
        elif not larger_is_wider and after > before:
            yield _problem(f"{name}_INCREASED", f"{path}{word}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(part: Part) -> bool:
    return part.get("type") in ("integer", ["integer"])


def _remainder(value: Any, divisor: Any) -> bool:
    from fractions import Fraction

    return bool(divisor) and Fraction(str(value)) % Fraction(str(divisor)) != 0


def _widened(before: str, after: str, old: list[Part], new: list[Part]) -> bool:
    one, single = len(old) == 1, len(new) == 1
    return after == "anyOf" or (one and (single or after == "oneOf")) or (single and before == "allOf")


def _distinct(parts: list[Part]) -> list[Part]:
    return list({_key(one): one for one in parts}.values())


def _matched(edges: list[list[int]]) -> int:
    """How many can be paired at most, each with another (Kuhn's algorithm)."""
    owner: dict[int, int] = {}

    def place(one: int, tried: set[int]) -> bool:
        for other in edges[one]:
            if other not in tried:
                tried.add(other)
                if other not in owner or place(owner[other], tried):
                    owner[other] = one
                    return True
        return False

    return sum(place(one, set()) for one in range(len(edges)))


def _mapping(schema: Any) -> dict[str, Any]:
    return schema if isinstance(schema, dict) else {}


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _key(part: Part) -> str:
    return json.dumps(part.schema, sort_keys=True)


def _problem(kind: str, path: str) -> str:
    return f"{{errorType:'{kind}', path:'{path.rstrip('/') or '#'}'}}"
