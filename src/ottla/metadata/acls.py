"""What the controller decides about ACLs. The rules are in `Metadata.acls`; `replay` changes them."""

from __future__ import annotations

from collections.abc import Sequence

from ottla import errors
from ottla.machine import Outcome
from ottla.metadata import records as r
from ottla.metadata.machine import Metadata
from ottla.security.acls import AclBinding, AclFilter, unknown_in, wrong_with
from ottla.types import Millis

#: Kafka's limit: a larger change would block the controller for too long.
MAX_RULES_PER_REQUEST = 10_000


def create_acls(
    metadata: Metadata, bindings: Sequence[AclBinding], *, now: Millis
) -> Outcome[r.MetadataRecord, list[errors.KafkaError | None]]:
    """Add rules. The response has None for each that is there now, or why it cannot be created."""
    new: dict[AclBinding, r.MetadataRecord] = {}
    results: list[errors.KafkaError | None] = []
    for binding in bindings:
        try:
            if (problem := wrong_with(binding)) is not None:
                raise errors.InvalidRequest(problem)
            if binding not in metadata.acls:
                new[binding] = r.fitting(r.AclAdded(binding))
            results.append(None)
        except errors.KafkaError as error:
            results.append(error)
    if len(new) > MAX_RULES_PER_REQUEST:
        raise errors.PolicyViolation(f"One request can create at most {MAX_RULES_PER_REQUEST} rules, not {len(new)}.")
    return Outcome(tuple(new.values()), results)


def delete_acls(
    metadata: Metadata, filters: Sequence[AclFilter], *, now: Millis
) -> Outcome[r.MetadataRecord, list[list[AclBinding] | errors.KafkaError]]:
    """Remove the rules that filters select. The response has them for each filter, or what is wrong with the filter."""
    gone: dict[AclBinding, None] = {}
    results: list[list[AclBinding] | errors.KafkaError] = []
    for each in filters:
        if (unknown := unknown_in(each)) is not None:
            results.append(errors.InvalidRequest(f"The filter has an unknown {unknown.replace('_', ' ')}."))
            continue
        found = metadata.acls.matching(each)
        results.append(found)
        gone |= dict.fromkeys(found)
    if len(gone) > MAX_RULES_PER_REQUEST:
        raise errors.PolicyViolation(
            f"The filters select {len(gone)} rules, but one request can delete at most {MAX_RULES_PER_REQUEST}."
        )
    return Outcome(tuple(map(r.AclRemoved, gone)), results)
