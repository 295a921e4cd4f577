"""One face for the three types of schemas."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

from ottla.errors import OttlaError
from ottla.registry.errors import InvalidSchema
from ottla.registry.values import AVRO, JSON, PROTOBUF, TYPES, Schema

_CACHED = 2000


class Parsed(Protocol):
    """A schema that was read."""

    def canonical(self, *, normalize: bool = False) -> str:
        """The schema in one form: what the registry stores."""

    def problems_reading(self, writer: Any) -> list[str]:
        """Why this schema cannot read what `writer`, of the same type, wrote."""

    def formatted(self, form: str) -> str | None:
        """The schema in the form of ``format=`` in a request; None for the usual one."""


class _Avro:
    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from ottla.registry.avro.parsing import Reader

        reader = Reader()
        for other in references.values():
            reader.read(other)
        self.node = reader.read(text)

    def canonical(self, *, normalize: bool = False) -> str:
        from ottla.registry.avro.printing import canonical

        return canonical(self.node, normalize=normalize)

    def problems_reading(self, writer: _Avro) -> list[str]:
        from ottla.registry.avro.compatibility import problems

        return problems(self.node, writer.node)

    def formatted(self, form: str) -> str | None:
        return None


class _Json:
    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from ottla.registry.json_schema.parsing import Document

        self.document = Document(text, references)

    def canonical(self, *, normalize: bool = False) -> str:
        return self.document.canonical(normalize=normalize)

    def problems_reading(self, writer: _Json) -> list[str]:
        from ottla.registry.json_schema.compatibility import problems

        return problems(self.document, writer.document)

    def formatted(self, form: str) -> str | None:
        return None


class _Protobuf:
    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from ottla.registry.protobuf.files import ProtoFile

        self.file = ProtoFile(text, references)

    def canonical(self, *, normalize: bool = False) -> str:
        return self.file.canonical(normalize=normalize)

    def problems_reading(self, writer: _Protobuf) -> list[str]:
        from ottla.registry.protobuf.compatibility import problems

        return problems(self.file, writer.file)

    def formatted(self, form: str) -> str | None:
        return self.file.serialized() if form == "serialized" else None


_KINDS: dict[str, Callable[[str, Mapping[str, str]], Parsed]] = {AVRO: _Avro, JSON: _Json, PROTOBUF: _Protobuf}
#: The packages that the types need, and the extra that has them.
_PACKAGES = {JSON: "jsonschema", PROTOBUF: "google.protobuf"}


def parse(kind: str, text: str, references: Mapping[str, str] | None = None) -> Parsed:
    """Read a schema; `references` has the texts of other schemas by the names that this one uses.

    >>> parse("AVRO", '{"type": "string"}').canonical()
    '"string"'
    """
    if kind not in TYPES:
        raise InvalidSchema(f"unknown schema type {kind}")
    if kind in _PACKAGES:
        try:
            import_module(_PACKAGES[kind])
        except ImportError:
            raise OttlaError(f"{kind} schemas need a package that is missing: pip install 'ottla[registry]'") from None
    return _KINDS[kind](text, references or {})


class Parser:
    """Reads schemas, and remembers the last ones."""

    def __init__(self, references_of: Callable[[Schema], Mapping[str, str]]) -> None:
        self._references_of = references_of
        self._parsed: OrderedDict[Schema, Parsed] = OrderedDict()

    def __call__(self, schema: Schema) -> Parsed:
        found = self._parsed.get(schema)
        if found is None:
            found = parse(schema.type, schema.text, self._references_of(schema))
            self._parsed[schema] = found
            if len(self._parsed) > _CACHED:
                self._parsed.popitem(last=False)
        else:
            self._parsed.move_to_end(schema)
        return found
