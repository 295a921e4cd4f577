"""One life of a broker: it loads the metadata, registers, replays the log at its own pace and serves requests.

The machines are real: the image is `Metadata`, replicas are `Leader` and `Follower`, and the controller runs the real
operations. This class and `replica.py` take the place of the sockets and tasks around them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.replication.controller import Controller
from tests.simulation.replication.disks import Disk, ReplicaLog
from tests.simulation.replication.messages import (
    AlterPartition,
    ControlledShutdown,
    Coordinate,
    Fetch,
    FetchAnswer,
    Produce,
    Read,
    Request,
    Write,
    WriteMarker,
)
from tests.simulation.replication.replica import Replica
from tests.simulation.replication.zookeeper import Batch, ConnectionLost, Session

from ottla import errors
from ottla.metadata import Metadata
from ottla.metadata.values import BrokerState

if TYPE_CHECKING:
    from tests.simulation.replication.cluster import Cluster

CHECKPOINT = 1_000
SHUTDOWN_PATIENCE = 4_000
RETRY = 200
UNKNOWN = -1


class Broker:
    """A process. Its disk is older and survives it."""

    def __init__(self, cluster: Cluster, broker_id: int, disk: Disk) -> None:
        self.cluster = cluster
        self.random = cluster.random
        self.broker_id = broker_id
        self.disk = disk
        self.is_alive = True
        self.is_paused = False
        self.is_stopping = False
        self.epoch = UNKNOWN
        """Of the registration; -1 before the first one."""
        self.image = Metadata(cluster.settings)
        self.batches: list[Batch] = []
        """What was replayed, for the invariants."""
        self.position = 0
        self.replicas: dict[int, Replica] = {}
        self._min_isr_used: dict[int, int] = {}
        self.controller: Controller | None = None
        self.controller_id: int | None = None
        self._previous_epoch = disk.clean_epoch if disk.clean_epoch != UNKNOWN else disk.life_epoch
        disk.clean_epoch = UNKNOWN
        self.is_clean = self._previous_epoch != UNKNOWN or not disk.logs
        """Whether it has everything that its earlier life had, as far as it knows."""
        self._deferred: list[Callable[[], None]] = []
        self._clock_rate = self.random.choice([0.95, 1.0, 1.0, 1.05])
        self._clock_offset = self.random.randrange(100_000)
        self._slow_watches = self.random.random() < 0.4
        self._is_serving = False
        """Whether the image has this registration. Before that, leaderships in it belong to an earlier life."""
        self.session = Session(self)
        self._load()
        self.after(CHECKPOINT, self._checkpoint)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def now(self) -> int:
        """Return the time of this machine, whose clock drifts."""
        return int(self._clock_offset + self._clock_rate * self.cluster.now)

    def after(self, delay: float, event: Callable[[], None]) -> None:
        """Do something later, unless the broker has died by then. A pause delays it."""
        self.cluster.after(delay, partial(self.do, event))

    def do(self, event: Callable[[], None]) -> None:
        """Do something now, or at the end of a pause."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._deferred.append(event)
        else:
            event()

    def pause(self) -> None:
        self.is_paused = True
        self.session.contact_changed()

    def resume(self) -> None:
        self.is_paused = False
        self.session.contact_changed()
        deferred, self._deferred = self._deferred, []
        for event in deferred:
            self.do(event)

    # ── start ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _load(self) -> None:
        self.session.call(self._read_metadata, self._loaded)

    def _read_metadata(self) -> tuple[list[Any], list[Batch]]:
        batches = list(self.cluster.zookeeper.log)
        return (list(self.cluster.truth.snapshot()) if self.random.random() < 0.5 else []), batches

    def _loaded(self, answer: Any) -> None:
        if isinstance(answer, ConnectionLost):
            self.after(RETRY, self._load)
            return
        snapshot, batches = answer
        if snapshot:
            self.image.replay_batch(snapshot)
            self.batches, self.position = batches, len(batches)
        for batch in batches[self.position :]:
            self._replay(batch)
        self.controller_id = self._current_controller()
        self.register()
        self.session.notify("controller")

    def register(self) -> None:
        """Create this broker's node."""
        session = self.session
        session.call(
            lambda: self.cluster.zookeeper.register(session, self.broker_id, self._previous_epoch), self._registered
        )

    def _registered(self, answer: Any) -> None:
        if isinstance(answer, ConnectionLost):
            self.after(RETRY, self._register_again)
            return
        self.cluster.say(f"broker {self.broker_id} registers as {answer}, before {self._previous_epoch}")
        self.epoch = answer
        if self.cluster.options.boot_ids:
            self.disk.life_epoch = answer
        self._serve_if_known()
        self.session.notify("head")

    def _register_again(self) -> None:
        node = self.cluster.zookeeper.brokers.get(self.broker_id)
        if node is not None and node.session is self.session:
            self._registered(node.czxid)
        elif self.session.is_connected and not self.session.is_expired:
            self.register()
        else:
            self.after(RETRY, self._register_again)

    def _serve_if_known(self) -> None:
        """Take roles once the image has this registration, and register again if it was fenced since."""
        known = self.known()
        if known is None or known.epoch != self.epoch or self.is_stopping:
            return
        self._previous_epoch, self.is_clean = self.epoch, True
        if not self._is_serving:
            self._is_serving = True
            for index in list(self.disk.logs):
                if not self._has(index):
                    self._drop(index)
            self._update_replicas()
        node = self.cluster.zookeeper.brokers.get(self.broker_id)
        if known.is_fenced and not known.is_shutting_down and (node is None or node.czxid != self.epoch):
            self._register_again()

    def known(self) -> BrokerState | None:
        """Return this broker as the image has it."""
        return self.image.brokers.get(self.broker_id)

    # ── ZooKeeper ─────────────────────────────────────────────────────────────────────────────────────────────────

    def watch_delay(self) -> int:
        """How long this broker takes to see news of ZooKeeper."""
        if self.controller is None and self._slow_watches and self.random.random() < 0.4:
            return self.random.randrange(2_000)
        return self.random.randrange(10)

    def watched(self, what: str) -> None:
        """Something in ZooKeeper has changed."""
        if what == "head":
            self.after(self.watch_delay(), self.read_log)
        elif what == "controller":
            self._controller_changed()
        elif self.controller is not None:
            self.controller.brokers_changed()

    def read_log(self) -> None:
        """Replay what other brokers have written."""
        if self.session.is_connected and not self.session.is_expired and self.epoch != UNKNOWN:
            self.replay_to(len(self.cluster.zookeeper.log))

    def replay_to(self, position: int) -> None:
        """Replay the log up to a position."""
        while self.position < position:
            self._replay(self.cluster.zookeeper.log[self.position])
            self._apply()

    def replay_own(self, batch: Batch) -> None:
        """Replay what this broker has written as the controller."""
        if batch.position == self.position:
            self._replay(batch)
            self._apply()

    def _replay(self, batch: Batch) -> None:
        self.cluster.invariants.replayed(self, batch)
        self.image.replay_batch(batch.records)
        self.batches.append(batch)
        self.position += 1

    def _apply(self) -> None:
        self._serve_if_known()
        if self._is_serving:
            self._update_replicas()

    def _controller_changed(self) -> None:
        node = self.cluster.zookeeper.controller
        self.controller_id = self._current_controller()
        if node is None:
            self.after(self.random.randrange(30), self._campaign)
        elif node.session is not self.session and self.controller is not None:
            self.controller.resign()

    def _current_controller(self) -> int | None:
        node = self.cluster.zookeeper.controller
        return None if node is None else node.data

    def _campaign(self) -> None:
        session = self.session
        if self.epoch == UNKNOWN or self.is_stopping:
            self.after(RETRY, self._campaign_later)
            return
        session.call(lambda: self.cluster.zookeeper.campaign(session, self.broker_id), partial(self._elected, session))

    def _campaign_later(self) -> None:
        if self.cluster.zookeeper.controller is None and not self.is_stopping:
            self._campaign()

    def _elected(self, session: Session, answer: Any) -> None:
        if isinstance(answer, ConnectionLost):
            node = self.cluster.zookeeper.controller
            if node is not None and node.session is self.session:
                answer = self.cluster.zookeeper.controller_epoch
            else:
                self.after(RETRY, self._campaign_later)
                return
        if answer is not None and session is self.session:
            self.cluster.say(f"broker {self.broker_id} is the controller of epoch {answer}")
            self.controller_id = self._current_controller()
            self.controller = Controller(self, answer)

    def session_lost(self, session: Session) -> None:
        """The session has expired: begin a new one and register again."""
        if session is not self.session or self.is_stopping:
            return
        self.cluster.say(f"broker {self.broker_id} learns that its session has expired")
        if self.controller is not None:
            self.controller.resign()
        self.session = Session(self)
        if self.epoch == UNKNOWN:
            self._load()
        else:
            self._come_back()

    def _come_back(self) -> None:
        """Read the log before registering again, to know whether the last registration is in it."""
        self.session.call(lambda: len(self.cluster.zookeeper.log), self._came_back)

    def _came_back(self, answer: Any) -> None:
        if isinstance(answer, ConnectionLost):
            self.after(RETRY, self._come_back)
            return
        self.replay_to(answer)
        self.register()
        for what in ("head", "controller"):
            self.session.notify(what)

    def reconnected(self) -> None:
        """The connection to ZooKeeper is back, and the session has survived."""
        if self.controller is not None:
            self.controller.catch_up()

    # ── replicas ──────────────────────────────────────────────────────────────────────────────────────────────────

    def min_isr(self) -> int:
        return self.image.settings(self.image.topics[self.cluster.topic]).min_isr

    def _has(self, index: int) -> bool:
        topic = self.image.topics.get(self.cluster.topic)
        return topic is not None and self.broker_id in topic.states[index].replicas

    def _update_replicas(self) -> None:
        topic = self.image.topics.get(self.cluster.topic)
        if topic is None:
            return
        for index, state in enumerate(topic.states):
            replica = self.replicas.get(index)
            if self.broker_id not in state.replicas:
                if replica is not None:
                    self._drop(index)
                continue
            if replica is None:
                log = self.disk.logs.setdefault(index, ReplicaLog())
                replica = self.replicas[index] = Replica(self, index, log, self.disk.watermarks.get(index, 0))
            elif replica.leader is not None and self._min_isr_used.get(index) != self.min_isr():
                replica.settings_changed()
            self._min_isr_used[index] = self.min_isr()
            if replica.state is not state:
                replica.update(state)

    def _drop(self, index: int) -> None:
        """Delete a replica that has moved away."""
        replica = self.replicas.pop(index, None)
        if replica is not None:
            replica.resign()
        del self.disk.logs[index]
        self.disk.watermarks.pop(index, None)

    def _checkpoint(self) -> None:
        """Write the high watermarks and, now and then, flush."""
        for index, replica in self.replicas.items():
            self.disk.watermarks[index] = replica.high_watermark
            if self.random.random() < 0.3:
                replica.log.flush()
        self.after(CHECKPOINT, self._checkpoint)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, request: Request, answer: Callable[[Any], None]) -> None:
        """Serve a request that has arrived."""
        match request:
            case AlterPartition() | ControlledShutdown():
                if self.controller is None:
                    answer(errors.NotController())
                else:
                    self.controller.handle(request, answer)
            case Fetch(index):
                replica = self.replicas.get(index)
                if replica is None:
                    answer(FetchAnswer(errors.UnknownTopicOrPartition.code))
                else:
                    replica.fetched(request, answer)
            case Produce(index) | Read(index) | Coordinate(index) | Write(index) | WriteMarker(index):
                replica = self.replicas.get(index)
                if replica is None:
                    answer(errors.UnknownTopicOrPartition())
                elif isinstance(request, Produce):
                    replica.produce(request, answer)
                elif isinstance(request, Read):
                    replica.read(request, answer)
                elif replica.coordinator is None:
                    answer(errors.NotLeaderOrFollower())
                else:
                    replica.coordinator.handle(request, answer)

    def ask_controller(self, request: Request, timeout: int, on_answer: Callable[[Any], None]) -> None:
        """Send a request to the controller that this broker knows."""
        if self.controller_id is None:
            self.after(RETRY, partial(on_answer, errors.NotController()))
        else:
            self.cluster.call(self, self.controller_id, request, timeout, on_answer)

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def kill(self) -> None:
        """End at once. What is written stays in the page cache of the machine."""
        self.is_alive = False
        self.session.contact_changed()

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """Hand over leaderships, flush and end."""
        self.is_stopping = True
        self._ask_to_stop(self.cluster.now + SHUTDOWN_PATIENCE, on_stopped)

    def _ask_to_stop(self, deadline: int, on_stopped: Callable[[], None]) -> None:
        self.ask_controller(
            ControlledShutdown(self.broker_id, self.epoch), 500, partial(self._may_stop, deadline, on_stopped)
        )

    def _may_stop(self, deadline: int, on_stopped: Callable[[], None], answer: Any) -> None:
        if answer == [] or self.cluster.now >= deadline:
            self._stop_now(on_stopped)
        else:
            self.after(RETRY, partial(self._ask_to_stop, deadline, on_stopped))

    def _stop_now(self, on_stopped: Callable[[], None]) -> None:
        for index, replica in self.replicas.items():
            replica.resign()
            replica.log.flush()
            self.disk.watermarks[index] = replica.high_watermark
        self.disk.clean_epoch = self._previous_epoch
        self.is_alive = False
        if self.controller is not None:
            self.controller.resign()
        self.session.close()
        on_stopped()
