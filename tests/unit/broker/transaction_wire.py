"""The requests of a transactional producer, one by one, in any version."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from ottla.protocol.apis import ApiKey
from ottla.records import decode_batch, scan
from unit.broker.wire import Wire, batch, fetch_request

NO_ABORTED: list[int] = []


class Ended(NamedTuple):
    code: int
    producer_id: int
    producer_epoch: int


class Producer:
    """A transactional producer that sends any request, including wrong ones."""

    def __init__(self, wire: Wire, transactional_id: str, *, timeout: int = 60_000, version: int = 5) -> None:
        self.wire = wire
        self.id = transactional_id
        wire.call(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [transactional_id]})
        answer = patiently(lambda: self.init(timeout=timeout, version=version))
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def _who(self) -> dict[str, Any]:
        return {"transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def init(self, *, timeout: int = 60_000, version: int = 5, **expected: int) -> Any:
        message = {"transactional_id": self.id, "transaction_timeout": timeout, **expected}
        return self.wire.call(ApiKey.INIT_PRODUCER_ID, version, message)

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        topics = [{"name": topic, "partitions": list(partitions or (0,))}]
        if version < 4:
            who = {f"v3_and_below_{name}": value for name, value in self._who.items()}
            answer = self.wire.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, {**who, "v3_and_below_topics": topics})
            results = answer.results_by_topic_v3_and_below
        else:
            transaction = {**self._who, "verify_only": False, "topics": topics}
            answer = self.wire.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": [transaction]})
            results = answer.results_by_transaction[0].topic_results
        return [each.partition_error_code for each in results[0].results_by_partition]

    def verify(self, topic: str, *partitions: int, version: int = 4) -> list[int]:
        topics = [{"name": topic, "partitions": list(partitions)}]
        transaction = {**self._who, "verify_only": True, "topics": topics}
        answer = self.wire.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": [transaction]})
        results = answer.results_by_transaction[0].topic_results[0].results_by_partition
        return [each.partition_error_code for each in results]

    def produce(self, topic: str, *values: bytes, sequence: int = 0, partition: int = 0, version: int = 9,
                transactional: bool = True, epoch: int | None = None) -> tuple[int, int]:  # fmt: skip
        records = batch(
            *(values or (b"x",)),
            # A marker has the broker's time. A much older batch would get its own segment.
            timestamp=int(time.time() * 1000),
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        message = {"transactional_id": self.id, "acks": -1, "timeout": 1000, "topic_data": data}
        answer = self.wire.call(ApiKey.PRODUCE, version, message).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def add_offsets(self, group: str, *, version: int = 3) -> int:
        answer = self.wire.call(ApiKey.ADD_OFFSETS_TO_TXN, version, {**self._who, "group_id": group})
        return int(answer.error_code)

    def commit_offset(self, group: str, topic: str, offset: int, *, version: int = 3, **member: Any) -> int:
        place = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": topic, "partitions": [place]}]
        message = {**self._who, "group_id": group, "topics": topics, **member}
        answer = self.wire.call(ApiKey.TXN_OFFSET_COMMIT, version, message)
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, committed: bool, *, version: int = 4) -> Ended:
        answer = self.wire.call(ApiKey.END_TXN, version, {**self._who, "committed": committed})
        return Ended(answer.error_code, answer.producer_id, answer.producer_epoch)

    def end_second(self, committed: bool) -> int:
        """End with the second version of the protocol, and continue with the id and epoch it returns."""
        ended = self.end(committed, version=5)
        if ended.code == 0:
            self.producer_id, self.epoch = ended.producer_id, ended.producer_epoch
        return ended.code

    def state(self) -> str:
        answer = self.wire.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [self.id]})
        return str(answer.transaction_states[0].transaction_state)


def patiently(ask: Any) -> Any:
    """Ask until the answer is not to try again later: the coordinator loads, or a transaction is being ended."""
    deadline = time.monotonic() + 40
    while (answer := ask()).error_code in (14, 15, 16, 51) and time.monotonic() < deadline:
        time.sleep(0.01)
    return answer


def committed(wire: Wire, topic: str, *, partition: int = 0, offset: int = 0) -> list[bytes]:
    """Return the records that a read_committed consumer sees, computed as a consumer does."""
    answer = wire.fetch(topic, offset, partition=partition, isolation_level=1)
    assert answer.error_code == 0
    aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
    open_: set[int] = set()
    seen: list[bytes] = []
    data = bytes(answer.records or b"")
    for position, header in scan(data, 0, len(data)).batches:
        while aborted and aborted[0][0] <= header.last_offset:
            open_.add(aborted.pop(0)[1])
        if header.is_control:
            open_.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_):
            seen += [record.value or b"" for record in decode_batch(data, position)]
    return seen


def everything(wire: Wire, topic: str, *, partition: int = 0) -> list[bytes]:
    """Return the records that a read_uncommitted consumer sees."""
    data = bytes(wire.fetch(topic, 0, partition=partition).records or b"")
    return [
        record.value or b""
        for position, header in scan(data, 0, len(data)).batches
        if not header.is_control
        for record in decode_batch(data, position)
    ]


def offset_of(wire: Wire, group: str, topic: str, *, stable: bool = True) -> tuple[int, int]:
    """Return the committed offset of a group and the error code."""
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    answer = wire.call(ApiKey.OFFSET_FETCH, 8, {"groups": [asked], "require_stable": stable}).groups[0]
    assert answer.error_code == 0
    found = answer.topics[0].partitions[0]
    return found.committed_offset, found.error_code


def write_marker(wire: Wire, producer: Producer, topic: str, *, epoch: int, committed: bool = True,
                 coordinator_epoch: int = 0, version: int = 2, transaction_version: int = 0) -> int:  # fmt: skip
    """Write a marker like a late coordinator."""
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": epoch,
        "transaction_result": committed,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": transaction_version,
    }
    if version < 2:
        del marker["transaction_version"]
    answer = wire.call(ApiKey.WRITE_TXN_MARKERS, version, {"markers": [marker]})
    return int(answer.markers[0].topics[0].partitions[0].error_code)


__all__ = ["Ended", "Producer", "committed", "everything", "fetch_request", "offset_of", "patiently", "write_marker"]
