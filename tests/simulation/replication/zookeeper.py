"""A model of ZooKeeper: linearizable writes, sessions that expire, ephemeral nodes, watches that arrive late.

It offers what `ottla.zookeeper` makes of ZooKeeper: a metadata log that is fenced by the epoch of the controller, the
registrations of brokers, and the election of the controller. Requests, answers and watches of one session keep their
order. An answer may be lost after the request was carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.metadata import MetadataRecord
from ottla.metadata.values import Registration

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker
    from tests.simulation.replication.cluster import Cluster

SESSION_TIMEOUT = 3_000


class ConnectionLost(Exception):
    """The answer did not arrive. The request may have been carried out."""


class NotController(Exception):
    """Another broker is the controller: nothing was written."""


class Batch(NamedTuple):
    """Records that were written together."""

    position: int
    records: tuple[MetadataRecord, ...]
    controller_epoch: int


class Node(NamedTuple):
    """An ephemeral node."""

    session: Session
    czxid: int
    data: Any


class ZooKeeper:
    """The servers. Methods run at one moment; sessions bring the delays."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.log: list[Batch] = []
        self.controller_epoch = 0
        self.controller: Node | None = None
        self.brokers: dict[int, Node] = {}
        self.sessions: list[Session] = []
        self._zxid = 0

    def _next_zxid(self) -> int:
        self._zxid += 1
        return self._zxid

    # ── writes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, records: Sequence[MetadataRecord], position: int, epoch: int) -> Batch:
        """Write a batch as the controller of an epoch, or raise NotController."""
        if epoch != self.controller_epoch or position != len(self.log):
            raise NotController
        self._next_zxid()
        batch = Batch(position, tuple(records), epoch)
        self.log.append(batch)
        self.cluster.invariants.metadata_written(batch)
        for session in self.sessions:
            session.notify("head")
        return batch

    def register(self, session: Session, broker_id: int, previous_epoch: int) -> int:
        """Create the node of a broker, in place of one of its earlier lives. Return its epoch."""
        epoch = self._next_zxid()
        self.brokers[broker_id] = Node(session, epoch, previous_epoch)
        self._tell("brokers")
        return epoch

    def remove(self, broker_id: int, czxid: int) -> None:
        """Delete the node of a broker that is certainly dead."""
        node = self.brokers.get(broker_id)
        if node is not None and node.czxid == czxid:
            del self.brokers[broker_id]
            self._tell("brokers")

    def campaign(self, session: Session, broker_id: int) -> int | None:
        """Become the controller. Return its epoch, or None if there is one already."""
        if self.controller is not None:
            return None
        self.controller = Node(session, self._next_zxid(), broker_id)
        self.controller_epoch += 1
        self._tell("controller")
        return self.controller_epoch

    def depose(self, czxid: int) -> None:
        """Delete the node of a controller that is certainly dead, or that gives up."""
        if self.controller is not None and self.controller.czxid == czxid:
            self.controller = None
            self._next_zxid()
            self._tell("controller")

    def end(self, session: Session) -> None:
        """End a session, with its nodes."""
        self.sessions.remove(session)
        gone = [broker_id for broker_id, node in self.brokers.items() if node.session is session]
        for broker_id in gone:
            self.remove(broker_id, self.brokers[broker_id].czxid)
        if self.controller is not None and self.controller.session is session:
            self.depose(self.controller.czxid)

    def _tell(self, what: str) -> None:
        for session in self.sessions:
            session.notify(what)

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def registrations(self) -> Mapping[int, Registration]:
        return {
            broker_id: Registration(broker_id, node.czxid, node.data, ()) for broker_id, node in self.brokers.items()
        }


class Session:
    """A session of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.cluster = broker.cluster
        self.zookeeper = self.cluster.zookeeper
        self.is_expired = False
        self.is_connected = True
        self._has_missed = False
        """Whether watches may have been lost with a connection."""
        self._contact = 0
        """Changes whenever contact is lost or found."""
        self._last_request = 0
        self._last_delivery = 0
        self._told: set[str] = set()
        """The watches that are on their way."""
        self.zookeeper.sessions.append(self)
        self.contact_changed()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def call(self, request: Callable[[], Any], on_answer: Callable[[Any], None]) -> None:
        """Have a request carried out. ``on_answer`` gets its result or the error."""
        cluster = self.cluster
        self._last_request = max(self._last_request, cluster.now + cluster.latency())
        cluster.after(self._last_request - cluster.now, partial(self._arrive, request, on_answer))

    def _arrive(self, request: Callable[[], Any], on_answer: Callable[[Any], None]) -> None:
        if not self.is_connected or self.is_expired:
            self._fail(on_answer)
            return
        try:
            answer = request()
        except NotController as error:
            answer = error
        self._deliver(partial(self._answer, answer, on_answer))

    def _answer(self, answer: Any, on_answer: Callable[[Any], None]) -> None:
        on_answer(answer if self.is_connected and not self.is_expired else ConnectionLost())

    def _fail(self, on_answer: Callable[[Any], None]) -> None:
        self._deliver(partial(on_answer, ConnectionLost()), 100)

    def _deliver(self, event: Callable[[], None], extra: int = 0) -> None:
        cluster = self.cluster
        self._last_delivery = max(self._last_delivery, cluster.now + cluster.latency() + extra)
        self.broker.after(self._last_delivery - cluster.now, event)

    # ── watches ───────────────────────────────────────────────────────────────────────────────────────────────────

    def notify(self, what: str) -> None:
        """Tell the broker that something has changed."""
        if self.is_connected and what not in self._told:
            self._told.add(what)
            self._deliver(partial(self._notified, what))

    def _notified(self, what: str) -> None:
        self._told.discard(what)
        if self.is_connected and not self.is_expired:
            self.broker.watched(what)

    # ── contact ───────────────────────────────────────────────────────────────────────────────────────────────────

    def contact_changed(self) -> None:
        """The broker was cut off, paused or killed, or none of that any more."""
        broker, cluster = self.broker, self.cluster
        is_cut = broker.broker_id in cluster.cut_from_zookeeper
        self._contact += 1
        self.is_connected = broker.is_alive and not is_cut
        self._has_missed = self._has_missed or not self.is_connected
        if self.is_expired:
            if self.is_connected:
                self.broker.after(cluster.latency(), partial(broker.session_lost, self))
            return
        if not self.is_connected or broker.is_paused:
            patience = SESSION_TIMEOUT * cluster.random.uniform(0.66, 1)
            cluster.after(patience, partial(self._expire, self._contact))
        if self.is_connected and self._has_missed:
            self._has_missed = False
            self._told.clear()
            self.broker.after(cluster.latency(), broker.reconnected)
            for what in ("head", "brokers", "controller"):
                self.notify(what)

    def _expire(self, contact: int) -> None:
        if contact == self._contact and not self.is_expired:
            self.cluster.say(f"the session of broker {self.broker.broker_id} expires")
            self.close()
            if self.is_connected:  # Paused: it learns of it when it runs again.
                self.broker.after(1, partial(self.broker.session_lost, self))

    def close(self) -> None:
        """End the session, with its nodes."""
        if not self.is_expired:
            self.is_expired = True
            self.zookeeper.end(self)
