"""Produce: append batches to partitions.

v3 adds record batches of magic 2, the only kind that is accepted; v8 errors per record; v11 TRANSACTION_ABORTABLE; v12
adds partitions to the transaction (KIP-890); v13 identifies topics by id. From v10 on, errors tell who leads. Like
Kafka, acks=0 gets no response, and an error closes the connection.
"""

from __future__ import annotations

import logging
from asyncio import Future, wait
from collections.abc import Awaitable, Mapping
from typing import Any

from ottla import errors
from ottla.broker.authorization import check, refusal, sees
from ottla.broker.deferred import producer_of
from ottla.broker.leader_hints import leader_addresses, leader_hint
from ottla.broker.node import Call, Node
from ottla.broker.partition import Partition
from ottla.broker.verification import ADDED, Producer, added_or_verified
from ottla.metadata.machine import INTERNAL_TOPICS
from ottla.net.server.connection import CloseConnection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.records import BATCH_OVERHEAD, MAGIC, MAGIC_AT, TRANSACTIONAL
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need
from ottla.storage.log import Log
from ottla.types import Millis, TopicPartition

API = ApiKey.PRODUCE
#: Like Kafka 4, ottla reports versions 0 to 2 but does not serve them: librdkafka before 2.8 does not compress without
#: them.
ADVERTISED_FIRST = 0
#: The position of the low attributes byte of a batch.
ATTRIBUTES = 22
ABORTABLE_FROM, ADDS_FROM = 11, 12
ALL = -1
WRITE = need("produce", Operation.WRITE, ResourceType.TOPIC)
WRITE_TRANSACTIONAL_ID = need("produce", Operation.WRITE, ResourceType.TRANSACTIONAL_ID, Denied.REQUEST)
#: Most requests have no transactional id, so there is nothing to check for the request as a whole.
CHECKS_REQUEST = True
logger = logging.getLogger("ottla.broker")
#: Responses for partitions whose records are not committed yet, with the futures they wait for.
Waits = list[tuple[Message, Partition, Future[None]]]
#: For each partition None, or why its transactional batch is rejected.
Verdicts = Mapping[tuple[str, int], errors.KafkaError | None]
_NO_VERDICTS: Verdicts = {}


def handle(node: Node, call: Call, request: Struct) -> Message | Awaitable[Message | None] | None:
    # The request is handled in any case. Its client may have to pause after it.
    pause = 0 if node.quotas is None else node.quotas.produced(call, call.connection.frame_hint)
    if request.transactional_id is not None:
        if (refused := refusal(node, call, WRITE_TRANSACTIONAL_ID, request.transactional_id)) is not None:
            return refuse(request, refused)
        return _transactional(node, call, request, pause)
    return _produce(node, call, request, _NO_VERDICTS, pause)


def refuse(request: Struct, error: errors.KafkaError) -> Message | None:
    """Answer each partition with the same error."""
    responses = [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partition_responses": [_answer(data.index, error) for data in topic.partition_data],
        }
        for topic in request.topic_data
    ]
    if request.acks == 0:
        _close_on_errors(responses)
    return {"responses": responses}


def _produce(
    node: Node, call: Call, request: Struct, verdicts: Verdicts, pause: Millis
) -> Message | Awaitable[Message | None] | None:
    now = node.clock.now()
    waits: Waits = []
    responses = [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partition_responses": [
                _append(node, call, request, topic, data, waits, verdicts, now=now) for data in topic.partition_data
            ],
        }
        for topic in request.topic_data
    ]
    if request.acks == 0:
        _close_on_errors(responses)
        return None
    response: Message = {"responses": responses, "throttle_time": pause}
    if waits:
        return _when_committed(node, call, waits, response, request.timeout)
    return response if node.cluster is None else _with_addresses(node, call, response)


def _with_addresses(node: Node, call: Call, response: Message) -> Message:
    """Add the addresses of the leaders that errors name."""
    partitions = (each for topic in response["responses"] for each in topic["partition_responses"])
    if addresses := leader_addresses(node, call, partitions):
        response["node_endpoints"] = addresses
    return response


def _append(
    node: Node,
    call: Call,
    request: Struct,
    topic: Struct,
    data: Struct,
    waits: Waits,
    verdicts: Verdicts,
    *,
    now: Millis,
) -> Message:
    name = topic.name
    try:
        _check(request, data)
        name = name or node.topic_by_id(topic.topic_id).name
        if node.authorizer is not None:
            check(node, call, WRITE, name)
        if name in INTERNAL_TOPICS:
            raise errors.InvalidTopicException(f"Cannot append to internal topic {name}: only the broker writes to it.")
        partition = node.leading(name, data.index)
        if verdicts and (rejection := verdicts.get((name, data.index))) is not None:
            raise rejection
        if node.deferred:
            node.deferred.check(topic, data, partition.log.producers, now=now)
        info = partition.append(data.records, now=now, all_in_sync=request.acks == ALL)
    except errors.KafkaError as error:
        node.metrics.produce_failed(error.name)
        if error.retriable:
            node.deferred.add(topic, data, now=now)
        return _failed(node, name, data.index, error)
    node.metrics.produced(name, len(data.records))
    message: Message = {
        "index": data.index,
        "base_offset": info.base_offset,
        "log_append_time": info.log_append_time,
        "log_start_offset": info.log_start_offset,
        "record_errors": (),
    }
    # acks=all waits until the records are committed, acks=1 only for a flush that the topic's config requires.
    until = partition.committed if request.acks == ALL else partition.flushed
    if request.acks and (pending := until(info.last_offset + 1)) is not None:
        waits.append((message, partition, pending))
    return message


def _check(request: Struct, data: Struct) -> None:
    if request.acks not in (-1, 0, 1):
        raise errors.InvalidRequiredAcks(f"acks must be 0, 1 or -1 (all), not {request.acks}.")
    if data.records is None:
        raise errors.InvalidRecord("The request contains no records for this partition.")
    # Inlined instead of calling producer_of, because this runs for every batch.
    is_batch = len(data.records) >= BATCH_OVERHEAD and data.records[MAGIC_AT] == MAGIC
    if is_batch and data.records[ATTRIBUTES] & TRANSACTIONAL and request.transactional_id is None:
        raise errors.TransactionalIdAuthorizationFailed(
            "A transactional batch needs a transactional id. Set transactional.id."
        )


async def _transactional(node: Node, call: Call, request: Struct, pause: Millis) -> Message | None:
    verdicts = await _verdicts(node, call, request)
    response = _produce(node, call, request, verdicts, pause)
    return response if response is None or isinstance(response, dict) else await response


async def _verdicts(node: Node, call: Call, request: Struct) -> Verdicts:
    """Check the batches that start a transaction in their partition. For later ones the partition knows enough."""
    verdicts: dict[tuple[str, int], errors.KafkaError | None] = {}
    producers: dict[Producer, set[TopicPartition]] = {}
    for topic, data in ((each, data) for each in request.topic_data for data in each.partition_data):
        known = None if data.records is None else producer_of(data.records)
        if known is None or not data.records[ATTRIBUTES] & TRANSACTIONAL:
            continue
        producer_id, epoch, sequence = known
        place, log = _place(node, call, topic, data.index)
        if place is None or log is None:
            continue
        producer = Producer(request.transactional_id, producer_id, epoch)
        wanted = producers.setdefault(producer, set())
        if log.producers.has_ongoing(producer_id, epoch):
            continue
        if call.api_version >= ADDS_FROM and sequence and producer_id not in log.producers.entries:
            verdicts[place.topic, place.partition] = errors.OutOfOrderSequenceNumber(
                f"The first batch of producer {producer_id} in {place} has sequence {sequence}, expected 0."
            )
        else:
            wanted.add(place)
    if len({producer.producer_id for producer in producers}) > 1:
        error = errors.InvalidProducerIdMapping(
            "The request contains batches of several producers. Send a request per producer."
        )
        return {(each.topic, each.partition): error for places in producers.values() for each in places}
    for producer, places in producers.items():
        if places:
            verdicts |= await _added(node, call, request, producer, places)
    return verdicts


async def _added(
    node: Node, call: Call, request: Struct, producer: Producer, places: set[TopicPartition]
) -> dict[tuple[str, int], errors.KafkaError | None]:
    adds = call.api_version >= ADDS_FROM
    _keep_records(request)
    found = await added_or_verified(node, producer, frozenset(places), adds=adds)
    return {(place.topic, place.partition): _error_for(error, call.api_version) for place, error in found.items()}


def _keep_records(request: Struct) -> None:
    """Copy the records: the frame is only valid until the first wait, and adding or verifying a partition may wait."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _place(node: Node, call: Call, topic: Struct, index: int) -> tuple[TopicPartition | None, Log | None]:
    try:
        name = topic.name or node.topic_by_id(topic.topic_id).name
        if not sees(node, call, WRITE, name):
            return None, None
        return TopicPartition(name, index), node.leading(name, index).log
    except errors.KafkaError:
        return None, None  # The append reports the error.


_TRY_AGAIN = (errors.CoordinatorLoadInProgress, errors.CoordinatorNotAvailable, errors.NotCoordinator)


def _error_for(error: errors.KafkaError | None, version: int) -> errors.KafkaError | None:
    """Map an error to one that an older client knows: either retriable or final."""
    if error is ADDED:
        return None
    if isinstance(error, errors.TransactionAbortable) and version < ABORTABLE_FROM:
        return errors.InvalidTxnState(str(error))
    if isinstance(error, _TRY_AGAIN) or (isinstance(error, errors.ConcurrentTransactions) and version < ADDS_FROM):
        return errors.NotEnoughReplicas(f"The state of the transaction is not available yet, try again: {error}")
    return error


def _failed(node: Node, topic: str | None, index: int, error: errors.KafkaError) -> Message:
    return leader_hint(node, topic, index, error) | _answer(index, error)


def _answer(index: int, error: errors.KafkaError) -> Message:
    return {
        "index": index,
        "error_code": error.code,
        "base_offset": -1,
        "record_errors": [
            {"batch_index": at, "batch_index_error_message": message} for at, message in _record_errors(error)
        ],
        "error_message": str(error),
    }


def _record_errors(error: errors.KafkaError) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = getattr(error, "record_errors", [])
    return found


def _close_on_errors(responses: list[dict[str, Any]]) -> None:
    for topic in responses:
        for partition in topic["partition_responses"]:
            if partition.get("error_code"):
                raise CloseConnection(
                    f"a produce request with acks=0 to {topic['name']}-{partition['index']} failed: "
                    f"{partition['error_message']}"
                )


async def _when_committed(node: Node, call: Call, waits: Waits, response: Message, timeout_ms: Millis) -> Message:
    await wait([pending for _, _, pending in waits], timeout=max(0, timeout_ms) / 1000)
    for message, partition, pending in waits:
        error: errors.KafkaError | None
        if not pending.done():
            error = partition.not_committed_in_time(timeout_ms)
        elif (failure := pending.exception()) is not None:
            if not isinstance(failure, errors.KafkaError):
                raise failure
            error = failure
        else:
            continue
        if isinstance(error, errors.KafkaStorageError):
            logger.error("%s", error)
        message.update(_failed(node, partition.topic, message["index"], error))
    return response if node.cluster is None else _with_addresses(node, call, response)
