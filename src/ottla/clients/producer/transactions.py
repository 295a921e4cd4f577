"""The transaction methods shared by the blocking and the asyncio producer: coroutines on the loop of the core.

    with producer.transaction():          # begin; commit at the end, abort after an exception
        producer.send("results", b"...")
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())

Each waits for coordinators, for at most max.block.ms; after that the same call may be repeated and continues where it
was. `ottla.producing.transactions` decides what happens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from ottla.clients.blocking import IllegalUse
from ottla.clients.producer.core import ProducerCore
from ottla.consuming.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.errors import KafkaError
from ottla.producing.errors import TransactionTimeout
from ottla.producing.transaction_states import State
from ottla.producing.transaction_values import GroupMember, Offset, Remedy
from ottla.producing.transactions import Operation, Transactions
from ottla.types import TopicPartition, whole

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
_OPEN = (State.IN_TRANSACTION, State.ABORTABLE_ERROR, State.ABORTING)


class TransactionCalls:
    """The methods. `begin` may be called from any thread, the others run on the loop."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self._timed_out: Operation | None = None

    @property
    def machine(self) -> Transactions:
        """The state machine; raises if no transaction method can be called now."""
        if self._core.transactions is None:
            raise IllegalUse("this producer has no transactions: set transactional.id")
        if self._core.closing:
            raise IllegalUse("this producer is closed: create a new one")
        return self._core.transactions

    async def init(self) -> None:
        machine = self.machine
        with self._core.lock:
            operation = self._repeated("init_transactions") or machine.init()
        await self.wait(operation)

    def begin(self) -> None:
        machine = self.machine
        with self._core.lock:
            machine.begin()
            self._timed_out = None
        self._core.allow_fast()

    async def send_offsets(self, offsets: Offsets, group_metadata: ConsumerGroupMetadata) -> None:
        machine = self.machine
        member, given = _member(group_metadata), {key: _offset(key, offset) for key, offset in offsets.items()}
        if not given:
            with self._core.lock:
                machine.check_send()
            return
        with self._core.lock:
            operation = machine.send_offsets(given, member)
        await self.wait(operation)

    async def commit(self) -> None:
        machine = self.machine
        self._core.set_fast(False)
        with self._core.lock:
            operation = self._repeated("commit_transaction") or machine.commit()
        await self._end(operation)

    async def abort(self) -> None:
        machine = self.machine
        self._core.set_fast(False)
        with self._core.lock:
            operation = self._repeated("abort_transaction") or machine.abort()
        await self._end(operation)

    async def leave(self, error: BaseException | None) -> None:
        """The end of a `with` block: commit, or abort after an error. Raises errors more serious than that one."""
        machine = self.machine
        if error is None and machine.state is State.IN_TRANSACTION:
            await self._commit_or_abort()
        elif machine.fatal is not None and machine.fatal is not error:
            raise machine.fatal from error
        elif machine.state in _OPEN:
            failed = machine.error
            await self.abort()
            if error is None and failed is not None:
                raise failed

    async def _commit_or_abort(self) -> None:
        try:
            await self.commit()
        except KafkaError as error:
            if error.remedy == Remedy.ABORT.value:
                await self.abort()
            raise

    async def close(self, timeout: float | None, error: Exception) -> None:
        """Close the producer. An open transaction is aborted first, if there is time."""
        try:
            await self._abort_open(timeout)
        except BaseException:
            timeout = 0
            raise
        finally:
            await self._core.close(timeout, error)

    async def _abort_open(self, timeout: float | None) -> None:
        machine = self._core.transactions
        if machine is None or machine.state not in _OPEN or timeout == 0:
            return
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(timeout):
                await self.abort()

    async def _end(self, operation: Operation) -> None:
        """Send or drop everything that waits, and wait for its outcome, before the transaction ends."""
        with self._core.lock:
            self._core.accumulator.begin_flush()
        try:
            await self.wait(operation)
        finally:
            with self._core.lock:
                self._core.accumulator.end_flush()
            self._core.allow_fast()

    def _repeated(self, name: str) -> Operation | None:
        """The operation that an earlier call waited for in vain, if it has finished since."""
        earlier, self._timed_out = self._timed_out, None
        return earlier if earlier is not None and earlier.name == name and earlier.done else None

    async def wait(self, operation: Operation) -> None:
        """Wait until an operation of the machine is done; raises its error."""
        self._core.wake()
        seconds = self._core.config.max_block_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                while not operation.done:
                    await self._core.next_progress()
        except TimeoutError:
            self._timed_out = operation
            raise TransactionTimeout(
                f"{operation.name} did not finish within {seconds:g} s (max.block.ms): are the brokers running? "
                "To retry: make the same call again, which continues where it was."
            ) from None
        if operation.error is not None:
            raise operation.error


def _member(given: ConsumerGroupMetadata) -> GroupMember:
    if not isinstance(given, ConsumerGroupMetadata):
        raise TypeError(f"the group must be the consumer's group_metadata(), not {given!r}")
    return GroupMember(given.group_id, given.generation_id, given.member_id, given.group_instance_id)


def _offset(key: TopicPartition, given: int | OffsetAndMetadata) -> Offset:
    if not isinstance(given, OffsetAndMetadata):
        if whole(given, f"the offset of {key}") < 0:
            raise ValueError(f"the offset {given} of {key} is negative: give the next one to read")
        given = OffsetAndMetadata(given)
    return Offset(given.offset, given.metadata, -1 if given.leader_epoch is None else given.leader_epoch)
