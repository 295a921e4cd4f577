"""A member of a consumer group. It polls on its own thread until it is told to leave.

The library's callbacks write to its `Journal`. Journals of one process share an `Owners`, which detects two members
that own a partition at the same time.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from ..clients.base import TP, ClientError

Result = TypeVar("Result")
LEAVE_SECONDS = 30.0


class Read(NamedTuple):
    """A record that a member has read."""

    topic: str
    partition: int
    offset: int
    value: int


class Event(NamedTuple):
    what: Literal["assigned", "revoked", "lost"]
    partitions: frozenset[TP]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The configuration of a member, the same for all libraries."""

    bootstrap_servers: str
    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None  # instead of topics; starts with ^
    assignor: str = "range"
    session_ms: int = 10_000
    heartbeat_ms: int = 200
    instance_id: str | None = None
    client_id: str = "member"
    commit: Literal["handover", "each", "auto", "never"] = "handover"
    """When offsets are committed: before partitions are revoked, after each poll, by the library's timer (and before
    partitions are revoked), never.
    """
    offset_reset: Literal["earliest", "latest", "none"] = "earliest"
    metadata_ms: int = 500


class Owners:
    """The current owners of partitions, according to the callbacks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[TP, str] = {}
        self.conflicts: list[str] = []

    def take(self, member: str, partitions: Iterable[TP]) -> None:
        with self._lock:
            for tp in partitions:
                owner = self._owners.get(tp)
                if owner is not None and owner != member:
                    self.conflicts.append(f"{member} was given {tp} while {owner} owned it")
                self._owners[tp] = member

    def give(self, member: str, partitions: Iterable[TP]) -> None:
        with self._lock:
            for tp in partitions:
                if self._owners.get(tp) == member:
                    del self._owners[tp]


class Journal:
    """What happened to a member."""

    def __init__(self, member: str, owners: Owners) -> None:
        self.member, self.owners = member, owners
        self.reads: list[Read] = []
        self.events: list[Event] = []
        self.errors: list[ClientError] = []

    def read(self, records: Iterable[Read]) -> None:
        self.reads.extend(records)

    def assigned(self, partitions: Iterable[TP]) -> None:
        found = frozenset(partitions)
        self.owners.take(self.member, found)
        self.events.append(Event("assigned", found))

    def revoked(self, partitions: Iterable[TP]) -> None:
        found = frozenset(partitions)
        self.owners.give(self.member, found)
        self.events.append(Event("revoked", found))

    def lost(self, partitions: Iterable[TP]) -> None:
        found = frozenset(partitions)
        self.owners.give(self.member, found)
        self.events.append(Event("lost", found))

    def failed(self, error: ClientError) -> None:
        self.errors.append(error)

    @property
    def moves(self) -> list[Event]:
        """Return the events that assigned or revoked a partition."""
        return [event for event in self.events if event.partitions]


class Driver(abc.ABC):
    """A consumer of one library. The member's thread makes all calls."""

    poll_seconds: ClassVar[float] = 0.05

    def __init__(self, options: Options, journal: Journal) -> None:
        self.options, self.journal = options, journal

    @abc.abstractmethod
    def poll(self, timeout: float) -> None:
        """Add new records to the journal; raise ClientError for errors of the library."""

    @abc.abstractmethod
    def commit(self, offsets: dict[TP, tuple[int, str]] | None = None) -> None:
        """Commit what was read, or these offsets and metadata, and wait for the response."""

    @abc.abstractmethod
    def committed(self, partition: TP) -> int | None: ...

    @abc.abstractmethod
    def assignment(self) -> frozenset[TP]: ...

    @abc.abstractmethod
    def seek(self, partition: TP, offset: int) -> None: ...

    @abc.abstractmethod
    def close(self) -> None:
        """Leave the group like the library does, with the option `commit`."""


class Member:
    """A consumer in a group, polling until it leaves."""

    def __init__(self, make: Callable[[Options, Journal], Driver], options: Options, journal: Journal) -> None:
        self.options, self.journal = options, journal
        self._make = make
        self._calls: SimpleQueue[tuple[Callable[[Driver], Any], Future[Any]]] = SimpleQueue()
        self._leaving = threading.Event()
        self.owned: frozenset[TP] = frozenset()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=options.client_id, daemon=True)

    def start(self) -> Member:
        self._thread.start()
        return self

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def call(self, function: Callable[[Driver], Result]) -> Result:
        """Call a function with the consumer between two polls."""
        future: Future[Result] = Future()
        self._calls.put((function, future))
        return future.result(LEAVE_SECONDS)

    def begin_to_leave(self) -> None:
        self._leaving.set()

    def leave(self) -> None:
        """Close the consumer and wait until that is done."""
        self.begin_to_leave()
        self._thread.join(LEAVE_SECONDS)
        if self._thread.is_alive():
            raise AssertionError(f"{self.options.client_id} did not leave within {LEAVE_SECONDS:g} s")
        if self.failure is not None:
            raise AssertionError(f"{self.options.client_id} failed") from self.failure

    def _run(self) -> None:
        try:
            self._poll(self._make(self.options, self.journal))
        except BaseException as failure:
            self.failure = failure
        finally:
            self.owned = frozenset()

    def _poll(self, driver: Driver) -> None:
        try:
            while not self._leaving.is_set():
                self._poll_once(driver)
        finally:
            driver.close()

    def _poll_once(self, driver: Driver) -> None:
        try:
            before = len(self.journal.reads)
            driver.poll(driver.poll_seconds)
            self.owned = driver.assignment()
            if self.options.commit == "each" and len(self.journal.reads) > before:
                driver.commit()
        except ClientError as error:
            self.journal.failed(error)
        self._serve(driver)

    def _serve(self, driver: Driver) -> None:
        while True:
            try:
                function, future = self._calls.get_nowait()
            except Empty:
                return
            try:
                future.set_result(function(driver))
            except BaseException as problem:
                future.set_exception(problem)
