"""Access to coordinators: find them, split work over them, retry while they move or load.

It does for groups and transactional ids what `Cluster.by_leader` does for partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import read_error
from ottla.clients.cluster.metadata import Node
from ottla.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, KafkaError, NotCoordinator
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.types import Millis

GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
FIRST_BATCHED = 4
#: The codes for a broker that is not the coordinator, or not ready; some responses have them per partition.
COORDINATOR_ERRORS = frozenset(
    error.code for error in (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
)

Result = TypeVar("Result")


class Coordinator(NamedTuple):
    """A broker that coordinates groups, and a connection to it."""

    node: Node
    connection: Connection


Send = Callable[[Coordinator, Sequence[str]], Awaitable[Mapping[str, Result | KafkaError]]]


async def by_coordinator(
    cluster: Cluster,
    groups: Iterable[str],
    send: Send[Result],
    *,
    key_type: int = GROUP_KEY_TYPE,
    timeout_ms: Millis | None = None,
) -> dict[str, Result | KafkaError]:
    """Send groups or transactional ids to their coordinators; the result has an error for each that keeps failing."""
    attempts = cluster.attempts(timeout_ms)
    done: dict[str, Result | KafkaError] = {}
    pending = list(dict.fromkeys(groups))
    while pending:
        outcomes = await _one_round(cluster, pending, send, key_type)
        done.update({group: outcome for group, outcome in outcomes.items() if _is_final(outcome)})
        pending = [group for group in pending if group not in done]
        if pending and not await attempts.pause():
            return {**outcomes, **done}
    return done


def _is_final(outcome: object) -> bool:
    return not isinstance(outcome, KafkaError) or not outcome.retriable


async def _one_round(
    cluster: Cluster, groups: Sequence[str], send: Send[Result], key_type: int
) -> dict[str, Result | KafkaError]:
    outcomes: dict[str, Result | KafkaError] = {}
    shares: dict[Node, list[str]] = {}
    for group, node in (await find_coordinators(cluster, groups, key_type)).items():
        if isinstance(node, KafkaError):
            outcomes[group] = node
        else:
            shares.setdefault(node, []).append(group)
    answers = await asyncio.gather(*(_one_share(cluster, node, share, send) for node, share in shares.items()))
    for answer in answers:
        outcomes.update(answer)
    return outcomes


async def _one_share(
    cluster: Cluster, node: Node, share: Sequence[str], send: Send[Result]
) -> Mapping[str, Result | KafkaError]:
    try:
        return await send(Coordinator(node, await cluster.connection(node)), share)
    except KafkaError as error:
        return dict.fromkeys(share, error)


async def find_coordinators(
    cluster: Cluster, groups: Sequence[str], key_type: int = GROUP_KEY_TYPE
) -> dict[str, Node | KafkaError]:
    """Find the coordinators of these groups or transactional ids."""
    try:
        connection = await cluster.any_connection()
        if connection.version_of(ApiKey.FIND_COORDINATOR) >= FIRST_BATCHED:
            message = {"key_type": key_type, "coordinator_keys": list(groups)}
            response = await connection.request(ApiKey.FIND_COORDINATOR, message)
            return {answer.key: _read_node(answer) for answer in response.coordinators}
        return {group: await _find_one(connection, group, key_type) for group in groups}
    except KafkaError as error:
        return dict.fromkeys(groups, error)


async def _find_one(connection: Connection, group: str, key_type: int) -> Node | KafkaError:
    message = {"key": group, "key_type": key_type}
    return _read_node(await connection.request(ApiKey.FIND_COORDINATOR, message))


def _read_node(answer: Struct) -> Node | KafkaError:
    if answer.error_code:
        return read_error(answer.error_code, answer.error_message)
    return Node(answer.node_id, answer.host, answer.port)


async def by_broker(
    cluster: Cluster, send: Callable[[Connection], Awaitable[Result]], *, timeout_ms: Millis | None = None
) -> list[Result]:
    """Send a request to every broker of the cluster, and repeat it while its error is retriable."""
    await cluster.refresh(())
    nodes = cluster.metadata.nodes.values()
    return list(await asyncio.gather(*(_patiently(cluster, node, send, timeout_ms) for node in nodes)))


async def _patiently(
    cluster: Cluster, node: Node, send: Callable[[Connection], Awaitable[Result]], timeout_ms: Millis | None
) -> Result:
    attempts = cluster.attempts(timeout_ms)
    while True:
        try:
            return await send(await cluster.connection(node))
        except KafkaError as error:
            if not error.retriable or not await attempts.pause():
                raise
