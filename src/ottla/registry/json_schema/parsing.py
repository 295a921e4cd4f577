"""Read a JSON Schema, with the schemas that it refers to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ottla.registry.errors import InvalidSchema

#: Keywords whose values are no schemas, and keywords with schemas by name.
_VALUES = ("enum", "const", "default", "examples")
_NAMES = ("properties", "patternProperties", "definitions", "$defs", "dependencies", "dependentSchemas")


class Document:
    """A schema and what its references mean. Needs ``jsonschema``.

    >>> Document('{"type": "object"}').canonical()
    '{"type":"object"}'
    """

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        import jsonschema
        import referencing.exceptions

        self.root = _loaded(text)
        if not isinstance(self.root, dict | bool):
            raise InvalidSchema("a JSON Schema is an object, true or false")
        if isinstance(self.root, dict) and not isinstance(self.root.get("$schema", ""), str):
            raise InvalidSchema("$schema is not a text")
        self.default_class = jsonschema.validators.validator_for(self.root, jsonschema.Draft7Validator)
        self._check_shape(self.root)
        self.others = {name: _loaded(text) for name, text in (references or {}).items()}
        try:
            self._resolver = self._registry().resolver(self._base())
            self._check_references(self.root, self._resolver, set())
        except (referencing.exceptions.Unresolvable, referencing.exceptions.NoSuchResource) as error:
            raise InvalidSchema(f'unresolved reference {error.ref!r}: give it in "references"') from None
        except RecursionError:
            raise InvalidSchema("the schema is nested too deeply") from None

    def _check_shape(self, schema: Any) -> None:
        import jsonschema

        try:
            self.default_class.check_schema(schema)
        except jsonschema.SchemaError as error:
            at = "/".join(map(str, error.absolute_path))
            raise InvalidSchema(f"not a JSON Schema: {error.message}{f', at {at}' if at else ''}") from None
        except RecursionError:
            raise InvalidSchema("the schema is nested too deeply") from None
        except Exception as error:  # a dialect or a regular expression that the library does not know
            raise InvalidSchema(f"not a JSON Schema: {error}") from None

    def _base(self) -> str:
        found = self.root.get("$id", self.root.get("id", "")) if isinstance(self.root, dict) else ""
        return found if isinstance(found, str) else ""

    def _registry(self) -> Any:
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT7

        resources = [(name, Resource.from_contents(one, DRAFT7)) for name, one in self.others.items()]
        root = Resource.from_contents(self.root, DRAFT7) if isinstance(self.root, dict) else DRAFT7.create_resource({})
        # A reference is named as in $ref: relative to the id of the schema, or as it is.
        from urllib.parse import urljoin

        resources += [(urljoin(self._base(), name), one) for name, one in resources]
        resources += [(one.id() or "", one) for _, one in resources if one.id()]
        return Registry().with_resources([*resources, (self._base(), root), ("", root)])

    def _check_references(self, part: Any, resolver: Any, seen: set[int], names: bool = False) -> None:
        """Follow all references. The keys of `part` are keywords, or `names` that may be anything."""
        if id(part) in seen:
            return
        seen.add(id(part))
        if isinstance(part, dict):
            if not names and isinstance(part.get("$ref"), str):
                self._check_references(*self._target(part["$ref"], resolver), seen)
            for key, one in part.items():
                if names or key not in _VALUES:
                    self._check_references(one, resolver, seen, not names and key in _NAMES)
        elif isinstance(part, list):
            for one in part:
                self._check_references(one, resolver, seen)

    def _target(self, reference: str, resolver: Any) -> tuple[Any, Any]:
        try:
            found, inner = self.lookup(reference, resolver)
        except (TypeError, ValueError, KeyError, AttributeError):
            raise InvalidSchema(f"unresolved reference {reference!r}") from None
        # It may be where the schema of schemas has not looked.
        self._check_shape(found)
        return found, inner

    @property
    def resolver(self) -> Any:
        return self._resolver

    @staticmethod
    def lookup(reference: str, resolver: Any) -> tuple[Any, Any]:
        """The schema that a ``$ref`` means, and the resolver for what is in it."""
        found = resolver.lookup(reference)
        return found.contents, found.resolver

    def canonical(self, *, normalize: bool = False) -> str:
        """The schema as compact JSON; `normalize` also sorts its keys."""
        return json.dumps(self.root, separators=(",", ":"), ensure_ascii=False, sort_keys=normalize)

    def validator(self) -> Any:
        """A validator of values, with the references."""
        return self.default_class(self.root, registry=self._registry())


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
