"""Client quotas: whom they are for, and the requests that read and change them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import read_error
from ottla.errors import KafkaError
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.security.quotas import ANY, CLIENT_QUOTAS, DEFAULT, EXACT, IP_QUOTAS, hint


class Which(Enum):
    """Stands for a name."""

    DEFAULT = "<default>"
    ANY = "<any>"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom quotas are for: a user, a client id, both, or an address. `DEFAULT` is everybody without their own.

    >>> str(QuotaEntity(user="alice", client_id=QuotaEntity.DEFAULT))
    'user=alice, client-id=<default>'
    """

    DEFAULT: ClassVar[Which] = Which.DEFAULT
    ANY: ClassVar[Which] = Which.ANY
    """In `describe_quotas`: any name, and the default."""

    user: str | Which | None = None
    client_id: str | Which | None = None
    ip: str | Which | None = None

    def __post_init__(self) -> None:
        for kind, name in self.parts.items():
            if not isinstance(name, str | Which):
                raise TypeError(f"the {kind} of a quota must be text or QuotaEntity.DEFAULT, not {name!r}")
            if name == "":
                raise ValueError(f"the {kind} of a quota is empty: give a name, or QuotaEntity.DEFAULT")
        if self.ip is not None and len(self.parts) > 1:
            raise ValueError("a quota of an ip cannot have a user or a client_id as well")

    @property
    def parts(self) -> dict[str, str | Which]:
        """The names by Kafka's types."""
        named = {"user": self.user, "client-id": self.client_id, "ip": self.ip}
        return {kind: name for kind, name in named.items() if name is not None}

    def __str__(self) -> str:
        return ", ".join(f"{kind}={name}" for kind, name in self.parts.items())


def checked_entity(given: object) -> QuotaEntity:
    """Check whom quotas are set for."""
    if not isinstance(given, QuotaEntity):
        raise TypeError(f"quotas are for a QuotaEntity, such as QuotaEntity(user='alice'), not {given!r}")
    if not given.parts:
        raise ValueError("the QuotaEntity is empty: give a user, a client_id or an ip")
    if QuotaEntity.ANY in given.parts.values():
        raise ValueError("QuotaEntity.ANY is only for describe_quotas: use QuotaEntity.DEFAULT")
    return given


def checked_quotas(given: object, entity: QuotaEntity) -> dict[str, float | None]:
    """Check the quotas of an entity."""
    known = CLIENT_QUOTAS if entity.ip is None else IP_QUOTAS
    if not isinstance(given, Mapping):
        raise TypeError(f"the quotas of {entity} must be a dict, such as {{{next(iter(known))!r}: 1000}}")
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{entity} cannot have a quota {name!r}.{hint(str(name), known)}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and (not is_number or not 0 < value < math.inf):
            raise ValueError(f"{name} must be a number above 0, or None to remove it, not {value!r}")
    return dict(given)


async def describe_quotas(
    cluster: Cluster, wanted: QuotaEntity, *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """The entities that match, with their quotas."""
    matches = {Which.DEFAULT: DEFAULT, Which.ANY: ANY}
    components = [
        {
            "entity_type": kind,
            "match_type": matches[name] if isinstance(name, Which) else EXACT,
            "match": name if isinstance(name, str) else None,
        }
        for kind, name in wanted.parts.items()
    ]
    response = await cluster.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": strict})
    if response.error_code:
        raise read_error(response.error_code, response.error_message)
    found = {_read_entity(entry): {each.key: each.value for each in entry.values} for entry in response.entries or ()}
    return {entity: found[entity] for entity in sorted(found, key=str)}


async def alter_quotas(
    cluster: Cluster, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool
) -> dict[QuotaEntity, KafkaError | None]:
    """Set quotas, and remove those with the value None."""
    entries = [
        {
            "entity": [
                {"entity_type": kind, "entity_name": name if isinstance(name, str) else None}
                for kind, name in entity.parts.items()
            ],
            "ops": [
                {"key": name, "value": 0.0 if value is None else float(value), "remove": value is None}
                for name, value in quotas.items()
            ],
        }
        for entity, quotas in changes.items()
    ]
    message = {"entries": entries, "validate_only": validate_only}
    response = await cluster.request_controller(
        ApiKey.ALTER_CLIENT_QUOTAS, message, errors=lambda answer: [each.error_code for each in answer.entries]
    )
    found = {
        _read_entity(each): read_error(each.error_code, each.error_message) if each.error_code else None
        for each in response.entries
    }
    return {entity: found[entity] for entity in changes if entity in found}


def _read_entity(entry: Struct) -> QuotaEntity:
    names = {
        each.entity_type.replace("-", "_"): each.entity_name if each.entity_name is not None else Which.DEFAULT
        for each in entry.entity
    }
    return QuotaEntity(**names)
