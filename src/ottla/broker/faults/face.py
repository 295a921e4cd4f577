"""``broker.faults`` and ``cluster.faults``: faults as a test writes them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ottla.broker.faults.rules import CUT, DELAY, DROP, FAIL, THROTTLE, Rule, WrongFault, error_of
from ottla.errors import KafkaError, OttlaError

Target = Callable[[str, Mapping[str, Any]], Any]
"""Runs an operation of `Control` in one broker, and returns its result."""


class BrokerGone(OttlaError):
    """The broker does not run, so it has no faults any more."""


class Removable(ABC):
    """A fault that ends with its ``with`` block, or with `remove`."""

    @abstractmethod
    def remove(self) -> None:
        """End it. Does nothing if it has ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class Fault(Removable):
    """A fault for requests. It ends after its number of requests, with ``with``, or with `remove`."""

    def __init__(self, rules: list[tuple[Target, int]], text: str) -> None:
        self._rules = rules
        self._text = text
        self._last_hits = 0

    def __repr__(self) -> str:
        return f"<{self._text}: {self.hits} hits>"

    @property
    def hits(self) -> int:
        """How many requests it has befallen, also after its end."""
        if self._rules:
            shown = [(rule, mine) for target, mine in self._rules for rule in target("list", {})]
            self._last_hits = sum(rule["hits"] for rule, mine in shown if rule["id"] == mine)
        return self._last_hits

    def remove(self) -> None:
        """End it. Does nothing if it has ended."""
        if self._rules:
            removed = [_end(target, "remove", rule_id) for target, rule_id in self._rules]
            self._last_hits = sum(rule["hits"] for rule in removed if rule is not None)
            self._rules = []


class FullDisk(Removable):
    """A disk without space. It ends with ``with``, or with `remove`."""

    def __init__(self, disks: list[tuple[Target, int]]) -> None:
        self._disks = disks

    def __repr__(self) -> str:
        return f"<full disk{'' if self._disks else ': removed'}>"

    def remove(self) -> None:
        for target, disk_id in self._disks:
            _end(target, "free_disk", disk_id)
        self._disks = []


class Faults:
    """Faults for the next requests of clients. Each is one that a real Kafka can show.

    >>> from ottla import Broker, Producer
    >>> with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
    ...     with broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=3) as fault:
    ...         offset = producer.send("orders", b"an order").get(10).offset
    ...     offset, fault.hits
    (0, 3)

    All of them take ``times`` (how many requests; all without it), ``client_id`` and ``topic``. Without an API they
    befall every request. A request with several topics fails as a whole.
    """

    def __init__(self, targets: Callable[[], Sequence[Target]]) -> None:
        self._targets = targets

    def _all(self, operation: str, values: Mapping[str, Any]) -> None:
        for target in self._targets():
            target(operation, values)

    def _coordinator(self, operation: str, values: Mapping[str, Any]) -> Any:
        """Ask the brokers until the coordinator of a group has done it."""
        problem: OttlaError | None = None
        for target in self._targets():
            try:
                return target(operation, values)
            except OttlaError as error:
                problem = problem or error
        raise problem or OttlaError("no broker is running")

    def fail(
        self,
        api: str,
        error: str | int | type[KafkaError] | KafkaError,
        *,
        times: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        after: bool = False,
    ) -> Fault:
        """Answer with an error: its name, its code, or a class of `ottla.errors`.

        With ``after`` the request is carried out all the same, as after a timeout. A request that Kafka cannot answer
        with this error goes on to the broker, and does not count.
        """
        return self._add(FAIL, api, times, client_id, topic, error=error_of(error).name, after=after)

    def delay(
        self,
        api: str | None = None,
        seconds: float = 1.0,
        *,
        times: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        after: bool = False,
    ) -> Fault:
        """Handle requests late, or answer late with ``after``. Later requests of the connection wait too."""
        return self._add(DELAY, api, times, client_id, topic, milliseconds=_millis(seconds), after=after)

    def cut(
        self,
        api: str | None = None,
        *,
        times: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        after: bool = False,
    ) -> Fault:
        """Close the connection instead of an answer. With ``after`` the request is carried out before."""
        return self._add(CUT, api, times, client_id, topic, after=after)

    def drop(
        self,
        api: str | None = None,
        *,
        times: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        after: bool = False,
    ) -> Fault:
        """Never answer, while the connection stays open. With ``after`` only the answer is lost."""
        return self._add(DROP, api, times, client_id, topic, after=after)

    def throttle(
        self,
        api: str | None = None,
        seconds: float = 1.0,
        *,
        times: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
    ) -> Fault:
        """Answer at once, tell the client to wait, and read nothing from it meanwhile, as a quota does."""
        return self._add(THROTTLE, api, times, client_id, topic, milliseconds=_millis(seconds))

    def _add(
        self, kind: str, api: str | None, times: int | None, client_id: str | None, topic: str | None, **more: Any
    ) -> Fault:
        values = {"kind": kind, "api": api, "times": times, "client_id": client_id, "topic": topic, **more}
        values = {name: value for name, value in values.items() if value is not None and value is not False}
        Rule.read(values)  # So that a mistake is raised here and not in another process.
        rules = [(target, target("add", values)["id"]) for target in self._targets()]
        return Fault(rules, f"{kind} {api or 'all'}")

    def rebalance(self, group: str) -> None:
        """Make a group rebalance, as a change of its topics does."""
        self._coordinator("rebalance", {"group": group})

    def expire_session(self, group: str, member: str | None = None) -> list[str]:
        """End the session of a member, or of all members, as if no heartbeat had come. Returns their ids."""
        expired: list[str] = self._coordinator("expire_session", {"group": group, "member": member})
        return expired

    def full_disk(self) -> FullDisk:
        """Let all writes to the log fail with "No space left on device".

        A broker alone with one disk goes on: produce requests get KAFKA_STORAGE_ERROR, reads work. In a cluster, and
        with several disks, the disk goes offline at the first write, until the broker is restarted.
        """
        return FullDisk([(target, target("fill_disk", {})) for target in self._targets()])

    def clear(self) -> None:
        """End all faults."""
        self._all("clear", {})


def _end(target: Target, operation: str, fault_id: int) -> Any:
    try:
        return target(operation, {"id": fault_id})
    except BrokerGone:
        return None


def _millis(seconds: object) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise WrongFault(f"seconds must be a number of at least 0, not {seconds!r}")
    return round(seconds * 1000)
