"""The client quotas of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.errors import InvalidRequest
from ottla.machine import Outcome
from ottla.metadata.records import ClientQuotasSet, MetadataRecord, fitting
from ottla.security.quotas import Entity, Filter, QuotaTable, check, describe
from ottla.types import Millis


@dataclass(slots=True)
class ClientQuotas:
    """The quotas of each entity."""

    values: dict[Entity, Mapping[str, float]] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    """How many entities have each quota."""

    @property
    def table(self) -> QuotaTable:
        """Finds the quota of a client. It changes with the quotas, but not the names that it has."""
        return QuotaTable(self.values, frozenset(self._counts))

    def alter(
        self, whom: Entity, changes: Sequence[tuple[str, float | None]], *, now: Millis
    ) -> Outcome[MetadataRecord, None]:
        """Set quotas of an entity, and remove those whose value is None."""
        twice = [name for name, count in Counter(name for name, _ in changes).items() if count > 1]
        if twice:
            raise InvalidRequest(f"Duplicate quota key {twice[0][:300]}, not updating quota for {describe(whom)}.")
        before = self.values.get(whom, {})
        after = dict(before)
        for name, value in changes:
            if value is None:
                after.pop(name, None)
            else:
                check(whom, name, value)
                after[name] = value
        return Outcome((fitting(ClientQuotasSet(whom, after)),) if after != before else (), None)

    def matching(self, wanted: Filter) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        """Iterate over the entities that a client asks for, with their quotas."""
        return ((whom, values) for whom, values in self.values.items() if wanted.matches(whom))

    def replay(self, record: ClientQuotasSet) -> None:
        self._counts -= Counter(self.values.pop(record.entity, {}).keys())
        if record.values:
            self.values[record.entity] = record.values
            self._counts += Counter(record.values.keys())

    def snapshot(self) -> Iterator[ClientQuotasSet]:
        """Yield the records that replay to this state."""
        for whom, values in self.values.items():
            yield ClientQuotasSet(whom, dict(values))
