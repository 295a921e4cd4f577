"""The values of a registry."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
TYPES = (JSON, PROTOBUF, AVRO)
LATEST = -1
LARGEST = 2**31 - 1


class Reference(NamedTuple):
    """Another schema that a schema uses: under which name, and which version of which subject it is."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """What a schema is, without the subject: equal schemas have the same id."""

    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: str = ""
    """JSON, as the rule set: the registry keeps both, and does not look into them."""
    rule_set: str = ""

    def as_json(self) -> dict[str, Any]:
        """The fields of a response; as in Confluent's registry, AVRO is left out."""
        found: dict[str, Any] = {} if self.type == AVRO else {"schemaType": self.type}
        if self.references:
            found["references"] = [one.as_json() for one in self.references]
        if self.metadata:
            found["metadata"] = json.loads(self.metadata)
        if self.rule_set:
            found["ruleSet"] = json.loads(self.rule_set)
        return {**found, "schema": self.text}

    def digest(self) -> bytes:
        """A checksum of all that makes up the schema."""
        references = "".join(f"{one.name}{one.subject}{one.version}" for one in self.references)
        text = f"{self.text}{references}{self.metadata}{self.rule_set}"
        return hashlib.md5(text.encode(errors="surrogatepass"), usedforsecurity=False).digest()

    @property
    def guid(self) -> str:
        """An id that is the same in all registries."""
        return str(UUID(bytes=self.digest()))


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject."""

    subject: str
    number: int
    id: int
    schema: Schema
    deleted: bool = False

    def as_json(self) -> dict[str, Any]:
        head = {"subject": self.subject, "version": self.number, "id": self.id, "guid": self.schema.guid}
        return {**head, **self.schema.as_json(), **({"deleted": True} if self.deleted else {})}
