"""ListTransactions: v1 filters by the age of a transaction, v2 by a pattern of the transactional id."""

from __future__ import annotations

from collections.abc import Callable

from ottla import errors
from ottla.broker.authorization import sees
from ottla.broker.node import Call, Node
from ottla.coordinator.consumer.regex import InvalidPattern, Pattern
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need
from ottla.transactions.transitions import State

API = ApiKey.LIST_TRANSACTIONS
SEE = need("list_transactions", Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, Denied.HIDDEN)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    known = set(State)
    unknown = [state for state in request.state_filters if state not in known]
    try:
        shards = list(node.transactions.shards.readable())
        matches = _matcher(request.transactional_id_pattern)
    except errors.KafkaError as error:
        return {"error_code": error.code, "transaction_states": []}
    states = [state for state in request.state_filters if state in known]
    if unknown and not states:
        return {"unknown_state_filters": unknown, "transaction_states": []}
    found = [
        each
        for shard in shards
        for each in await shard.runner.run(
            shard.coordinator.list_transactions,
            states,
            request.producer_id_filters,
            longer_than=request.duration_filter,
            matches=matches,
        )
    ]
    return {
        "unknown_state_filters": unknown,
        "transaction_states": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": str(each.state),
            }
            for each in found
            if sees(node, call, SEE, each.transactional_id)
        ],
    }


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    if not pattern:
        return None
    try:
        return Pattern(pattern).matches
    except InvalidPattern as error:
        raise errors.InvalidRegularExpression(str(error)) from error
