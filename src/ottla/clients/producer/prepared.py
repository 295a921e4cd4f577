"""Transactions that one process writes and another one ends, as the tasks and the driver of a Spark job do.

    producer = PreparingProducer(bootstrap_servers="localhost:9092", transactional_id="any")
    producer.take_over("job-0")                  # fences the previous producer of this id, aborts what it left open
    producer.begin_transaction()
    producer.producer.send("results", b"...")
    prepared = producer.prepare()                # everything is acknowledged, and the transaction stays open

    producer.end([prepared], commit=True)        # by this or any other producer, in any process

A `Prepared` is enough to end its transaction by producer id and epoch. Ending it again is harmless: the coordinator
recognizes the repetition. The caller decides what is prepared, ended and taken over.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from ottla.clients.admin.group_offsets import committed_offsets, stable_offsets
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.coordinators import TRANSACTION_KEY_TYPE, Coordinator, by_broker, by_coordinator
from ottla.clients.cluster.leaders import read_error
from ottla.clients.producer.blocking import Producer
from ottla.clients.producer.transaction_requests import end_transaction
from ottla.clients.producer.transactions import Offsets
from ottla.consuming.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.errors import KafkaError, TransactionalIdNotFound
from ottla.net.client.connection import Connection
from ottla.producing.transactions import Operation
from ottla.protocol.apis import ApiKey
from ottla.types import TopicPartition

T = TypeVar("T")
ONGOING = "Ongoing"
COMMITTED = ("PrepareCommit", "CompleteCommit")
#: The last epoch that a coordinator assigns; the next transaction gets another producer id.
LAST_EPOCH = 2**15 - 2


@dataclass(frozen=True, slots=True)
class Prepared:
    """An open transaction whose writer has sent everything."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int
    """The version of the transaction protocol that the writer used."""


class Described(NamedTuple):
    """What a coordinator knows about a transactional id."""

    state: str
    producer_id: int
    producer_epoch: int


def fate(prepared: Prepared, found: Described | None) -> str:
    """What became of a prepared transaction: `open`, `committed`, or `lost` if it was aborted.

    A commit raises the epoch in the second version of the protocol, and changes the producer id after the last one.

    >>> fate(Prepared("a-0", 7, 3, 2), Described("CompleteCommit", 7, 4))
    'committed'
    >>> fate(Prepared("a-0", 7, 3, 2), Described("CompleteAbort", 7, 4))
    'lost'
    """
    if found is None:
        return "lost"
    same = found.producer_id == prepared.producer_id
    if found.state == ONGOING:
        return "open" if same and found.producer_epoch == prepared.producer_epoch else "lost"
    if found.state not in COMMITTED:
        return "lost"
    if same:
        ended = found.producer_epoch - prepared.producer_epoch
        return "committed" if ended in ((0,) if prepared.version < 2 else (0, 1)) else "lost"
    return "committed" if prepared.producer_epoch >= LAST_EPOCH and found.producer_epoch == 0 else "lost"


async def describe_transactions(cluster: Cluster, ids: Iterable[str]) -> dict[str, Described | None]:
    """The state of transactional ids, None for unknown ones. Raises the first other error."""
    found = await by_coordinator(cluster, ids, _describe, key_type=TRANSACTION_KEY_TYPE)
    described: dict[str, Described | None] = {}
    for name, one in found.items():
        if isinstance(one, KafkaError) and not isinstance(one, TransactionalIdNotFound):
            raise one
        described[name] = one if isinstance(one, Described) else None
    return described


async def _describe(coordinator: Coordinator, ids: Sequence[str]) -> Mapping[str, Described | KafkaError]:
    message = {"transactional_ids": list(ids)}
    response = await coordinator.connection.request(ApiKey.DESCRIBE_TRANSACTIONS, message)
    return {
        one.transactional_id: read_error(one.error_code)
        if one.error_code
        else Described(one.transaction_state, one.producer_id, one.producer_epoch)
        for one in response.transaction_states
    }


async def end_transactions(
    cluster: Cluster, prepared: Iterable[Prepared], *, commit: bool
) -> dict[str, KafkaError | None]:
    """End transactions and return the error of each, None on success, by transactional id."""
    by_id = {one.transactional_id: one for one in prepared}
    return await by_coordinator(cluster, by_id, partial(_end, by_id, commit), key_type=TRANSACTION_KEY_TYPE)


async def _end(
    by_id: Mapping[str, Prepared], commit: bool, coordinator: Coordinator, ids: Sequence[str]
) -> dict[str, KafkaError | None]:
    async def one(name: str) -> KafkaError | None:
        known = by_id[name]
        try:
            return await end_transaction(
                coordinator.connection, name, known.producer_id, known.producer_epoch, known.version, commit=commit
            )
        except KafkaError as error:
            return error

    return dict(zip(ids, await asyncio.gather(*map(one, ids)), strict=True))


async def open_transactions(cluster: Cluster, prefix: str) -> list[Prepared]:
    """The open transactions whose ids are the prefix, a dash and a number.

    None for brokers that cannot list transactions (Kafka before 3.0).
    """
    pattern = re.compile(rf"{re.escape(prefix)}-\d+")
    listed = {name for names in await by_broker(cluster, _list_ongoing) for name in names}
    found = await describe_transactions(cluster, sorted(name for name in listed if pattern.fullmatch(name)))
    return [
        Prepared(name, one.producer_id, one.producer_epoch, 2)
        for name, one in found.items()
        if one is not None and one.state == ONGOING
    ]


async def _list_ongoing(connection: Connection) -> list[str]:
    if ApiKey.LIST_TRANSACTIONS not in connection.api_versions:
        return []
    message = {"state_filters": [ONGOING], "producer_id_filters": []}
    response = await connection.request(ApiKey.LIST_TRANSACTIONS, message)
    if response.error_code:
        raise read_error(response.error_code)
    return [one.transactional_id for one in response.transaction_states]


class PreparingProducer:
    """A transactional `producer` that can switch its transactional id and leave transactions open for others to end."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **options: object) -> None:
        self.producer = Producer(config, **options)
        self._thread, self._core, self._transactions = (
            self.producer._thread,
            self.producer._core,
            self.producer._transactions,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout: float | None = None) -> None:
        self.producer.close(timeout)

    def begin_transaction(self) -> None:
        self.producer.begin_transaction()

    def send_offsets_to_transaction(self, offsets: Offsets, group_metadata: ConsumerGroupMetadata) -> None:
        self.producer.send_offsets_to_transaction(offsets, group_metadata)

    def commit_transaction(self) -> None:
        self.producer.commit_transaction()

    def take_over(self, transactional_id: str) -> None:
        """Become the producer of this id: the previous one is fenced, and what it left open is aborted."""
        self._thread.call(self._take_over(transactional_id))

    async def _take_over(self, transactional_id: str) -> None:
        core, machine = self._core, self._transactions.machine
        core.set_fast(False)
        core.rename(transactional_id)
        with core.lock:
            operation: Operation = machine.take_over(transactional_id)
        await self._transactions.wait(operation)

    def prepare(self) -> Prepared:
        """Wait until everything is acknowledged, and leave the transaction open. `take_over` comes next."""
        return self._thread.call(self._prepare())

    async def _prepare(self) -> Prepared:
        core, machine = self._core, self._transactions.machine
        core.set_fast(False)
        await core.flush()
        with core.lock:
            return Prepared(machine.transactional_id, *machine.leave_open())

    def describe(self, ids: Iterable[str]) -> dict[str, Described | None]:
        return self._ask(partial(describe_transactions, ids=ids))

    def end(self, prepared: Iterable[Prepared], *, commit: bool) -> dict[str, KafkaError | None]:
        return self._ask(partial(end_transactions, prepared=prepared, commit=commit))

    def open_transactions(self, prefix: str) -> list[Prepared]:
        return self._ask(partial(open_transactions, prefix=prefix))

    def committed_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed now, without the offsets of open transactions."""
        found = self._ask(partial(committed_offsets, groups=[group]))[group]
        if isinstance(found, KafkaError):
            raise found
        return found

    def stable_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed once the transactions that commit to it now have ended."""
        return self._ask(partial(stable_offsets, group=group))

    def _ask(self, question: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        return self._thread.call(question(self._core.cluster))
