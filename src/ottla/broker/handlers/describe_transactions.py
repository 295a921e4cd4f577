"""DescribeTransactions: the state of transactional ids, and the partitions that each transaction reaches to."""

from __future__ import annotations

from itertools import groupby

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.transactions.messages import Described

API = ApiKey.DESCRIBE_TRANSACTIONS


async def handle(node: Node, call: Call, request: Struct) -> Message:
    return {"transaction_states": [await _describe(node, each) for each in dict.fromkeys(request.transactional_ids)]}


async def _describe(node: Node, transactional_id: str) -> Message:
    try:
        shard = node.transactions.of(transactional_id)
        found = await shard.runner.run(shard.coordinator.describe, transactional_id)
    except errors.KafkaError as error:
        found = Described(transactional_id, error.code)
    return {
        "error_code": found.error_code,
        "transactional_id": transactional_id,
        "transaction_state": str(found.state),
        "transaction_timeout": found.timeout,
        "transaction_start_time": found.started_at,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": [each.partition for each in group]}
            for topic, group in groupby(found.partitions, key=lambda each: each.topic)
        ],
    }
