"""DescribeTransactions: the state of transactional ids and the partitions of each transaction."""

from __future__ import annotations

from itertools import groupby

from ottla import errors
from ottla.broker.authorization import check, sees
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need
from ottla.transactions.messages import Described

API = ApiKey.DESCRIBE_TRANSACTIONS
DESCRIBE = need("describe_transactions", Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
SEE_TOPIC = need("describe_transactions", Operation.DESCRIBE, ResourceType.TOPIC, Denied.HIDDEN)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    asked = with_pauses(dict.fromkeys(request.transactional_ids))
    return {"transaction_states": [await _describe(node, call, each) async for each in asked]}


async def _describe(node: Node, call: Call, transactional_id: str) -> Message:
    try:
        check(node, call, DESCRIBE, transactional_id)
        shard = node.transactions.of(transactional_id)
        description = await shard.answer(shard.coordinator.describe, transactional_id)
    except errors.KafkaError as error:
        description = Described(transactional_id, error.code)
    return {
        "error_code": description.error_code,
        "transactional_id": transactional_id,
        "transaction_state": str(description.state),
        "transaction_timeout": description.timeout,
        "transaction_start_time": description.started_at,
        "producer_id": description.producer_id,
        "producer_epoch": description.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": [each.partition for each in group]}
            for topic, group in groupby(description.partitions, key=lambda each: each.topic)
            if sees(node, call, SEE_TOPIC, topic)
        ],
    }
