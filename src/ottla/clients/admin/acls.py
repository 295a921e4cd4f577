"""Requests about ACLs: create, describe and delete rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import read_error
from ottla.errors import KafkaError
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import AclBinding, AclFilter, wrong_with


def binding(given: object) -> AclBinding:
    """Check a rule before it is sent."""
    if not isinstance(given, AclBinding):
        raise TypeError(f"an ACL must be an AclBinding, not {given!r}")
    if (problem := wrong_with(given)) is not None:
        raise ValueError(problem)
    return given


def acl_filter(given: object) -> AclFilter:
    """Check a filter. A rule selects itself."""
    if isinstance(given, AclBinding):
        return AclFilter(*given)
    if not isinstance(given, AclFilter):
        raise TypeError(f"a filter of ACLs must be an AclFilter, not {given!r}")
    return given


async def create_acls(cluster: Cluster, bindings: Sequence[AclBinding]) -> dict[AclBinding, KafkaError | None]:
    """Add rules."""
    creations = [
        {
            "resource_type": each.resource_type,
            "resource_name": each.resource_name,
            "resource_pattern_type": each.pattern_type,
            "principal": each.principal,
            "host": each.host,
            "operation": each.operation,
            "permission_type": each.permission,
        }
        for each in bindings
    ]
    response = await cluster.request_controller(
        ApiKey.CREATE_ACLS, {"creations": creations}, errors=lambda r: [each.error_code for each in r.results]
    )
    return {each: _error(result) for each, result in zip(bindings, response.results, strict=True)}


async def describe_acls(cluster: Cluster, selected: AclFilter) -> list[AclBinding]:
    """Return the rules that a filter selects."""
    response = await cluster.request(ApiKey.DESCRIBE_ACLS, _filter_message(selected))
    if response.error_code:
        raise read_error(response.error_code, response.error_message)
    return sorted(
        AclBinding(
            found.resource_type,
            found.resource_name,
            found.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for found in response.resources
        for each in found.acls
    )


async def delete_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> dict[AclFilter, list[AclBinding] | KafkaError]:
    """Remove the rules that filters select; return them for each filter."""
    message = {"filters": [_filter_message(each) for each in filters]}
    response = await cluster.request_controller(ApiKey.DELETE_ACLS, message, errors=_delete_errors)
    return {each: _removed(result) for each, result in zip(filters, response.filter_results, strict=True)}


def _removed(result: Struct) -> list[AclBinding] | KafkaError:
    errors = (_error(each) for each in chain([result], result.matching_acls))
    if (error := next((each for each in errors if each is not None), None)) is not None:
        return error
    return [
        AclBinding(
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in result.matching_acls
    ]


def _delete_errors(response: Struct) -> Iterable[int]:
    return [each.error_code for each in response.filter_results]


def _error(result: Struct) -> KafkaError | None:
    return read_error(result.error_code, result.error_message) if result.error_code else None


def _filter_message(selected: AclFilter) -> Message:
    return {
        "resource_type_filter": selected.resource_type,
        "resource_name_filter": selected.resource_name,
        "pattern_type_filter": selected.pattern_type,
        "principal_filter": selected.principal,
        "host_filter": selected.host,
        "operation": selected.operation,
        "permission_type": selected.permission,
    }
