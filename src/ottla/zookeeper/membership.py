"""Which brokers are alive: one ephemeral node for each, `/brokers/ids/<id>`.

The transaction that creates the node is the broker's epoch. Each registration also sets the data of `/brokers/ids`. So
the version of that node tells whether a node was created anew since it was read, and a deletion cannot hit the next
life of a broker.
"""

from __future__ import annotations

import asyncio
import enum
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ottla.errors import OttlaError
from ottla.metadata.values import Endpoint, Registration
from ottla.zookeeper.client import Observer, Watch, ZooKeeper, probe
from ottla.zookeeper.layout import BROKER_IDS
from ottla.zookeeper.values import (
    Check,
    ConnectionLost,
    Create,
    Delete,
    Node,
    Rejected,
    SessionClosed,
    SessionState,
    Set,
    ZooKeeperError,
)

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


class Life(enum.Enum):
    """Whether a process is alive, by its ports."""

    ALIVE = enum.auto()
    DEAD = enum.auto()
    """All its ports refuse connections."""
    UNKNOWN = enum.auto()


async def life_of(listeners: Iterable[Endpoint]) -> Life:
    """Connect to each address once."""
    errors = await asyncio.gather(*(probe(each.host, each.port) for each in listeners))
    if any(error is None for error in errors):
        return Life.ALIVE
    return Life.DEAD if all(isinstance(error, ConnectionRefusedError) for error in errors) else Life.UNKNOWN


class BrokerIdInUse(OttlaError):
    """Another broker has this id."""


class Membership:
    """The brokers that are alive, and this one among them.

        membership = Membership(zookeeper, on_registered)
        epoch = await membership.register(Registration(2, -1, -1, (Endpoint("PLAINTEXT", "localhost", 9092),)))
        membership.watch(on_change)

    After the loss of a session the broker is registered again, and `on_registered` gets its new epoch. If another
    broker has taken the id meanwhile, `on_refused` gets the error: this one has to stop.

    The controller may have missed an earlier registration. `known_epoch` returns the epoch by which it knows this
    broker. If that is from this run, it is given as the previous epoch: the process has not stopped, so it has lost
    nothing. Else the previous epoch is the one with which the run began.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        on_registered: Callable[[int], None] = lambda epoch: None,
        on_refused: Callable[[BrokerIdInUse], None] = lambda error: None,
        known_epoch: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self._known_epoch = known_epoch or self._last_epoch
        self._on_registered = on_registered
        self._on_refused = on_refused
        self._registration: Registration | None = None
        self._session_id = 0
        self._sessions: set[int] = set()
        self._epochs: set[int] = set()
        """Of this run."""
        self._registering = asyncio.Lock()
        self._again: asyncio.Task[None] | None = None
        self._observer: Observer | None = None
        self._on_change: Callable[[Mapping[int, Registration]], None] = lambda members: None
        self.members: Mapping[int, Registration] | None = None
        """The brokers that are alive, by id. None until they are known."""
        zookeeper.on_state(self._state_changed)

    async def stop(self) -> None:
        """Stop watching. The end of the session removes the node."""
        self._registration = None
        if self._again is not None:
            self._again.cancel()
        if self._observer is not None:
            await self._observer.stop()

    # ── this broker ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def epoch(self) -> int:
        """The epoch of this broker, or -1 if it was never registered."""
        return -1 if self._registration is None else self._registration.epoch

    async def register(self, registration: Registration) -> int:
        """Register this broker, and return its epoch. The epoch of the argument is not used.

        The broker must listen already. A node of an earlier life is replaced. Raises BrokerIdInUse if another broker
        has the id.
        """
        async with self._registering:
            self._registration = registration._replace(epoch=await self._register(registration))
        return self.epoch

    async def register_again(self, epoch: int) -> None:
        """Register this broker again if this is still its epoch: it was fenced although it is alive.

        `on_registered` gets the new epoch.
        """
        async with self._registering:
            known = self._registration
            if known is not None and known.epoch == epoch:
                self._registration = known._replace(epoch=await self._register(known))
                self._on_registered(self.epoch)

    async def _last_epoch(self) -> int:
        return self.epoch

    def _state_changed(self, state: SessionState) -> None:
        is_new = state is SessionState.CONNECTED and self._session_id not in (0, self._zookeeper.session_id)
        if is_new and self._registration is not None and (self._again is None or self._again.done()):
            self._again = asyncio.create_task(self._after_lost_session(self._registration.epoch))

    async def _after_lost_session(self, epoch: int) -> None:
        while True:
            try:
                await self.register_again(epoch)
                return
            except BrokerIdInUse as error:
                log.error("this broker cannot register again: %s", error)
                self._on_refused(error)
                return
            except SessionClosed:
                return
            except ZooKeeperError as error:
                log.error("this broker cannot register again now: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _register(self, registration: Registration) -> int:
        path = path_of(registration.broker_id)
        while True:
            guard = (await self._zookeeper.get(BROKER_IDS)).stat.version
            node = await self._zookeeper.find(path)
            if node is not None and node.stat.owner in self._sessions:
                self._epochs.add(node.stat.czxid)  # The answer may have been lost.
            elif node is not None:
                await self._wait_for_death(registration, node)
            remove = () if node is None else (Check(BROKER_IDS, guard), Delete(path))
            known = await self._known_epoch()
            current = registration._replace(previous_epoch=known) if known in self._epochs else registration
            create = Create(path, encode(current), is_ephemeral=True)
            session_id = self._zookeeper.session_id
            self._sessions.add(session_id)
            try:
                epoch = await self._zookeeper.multi(*remove, create, Set(BROKER_IDS, b""))
            except (ConnectionLost, Rejected):
                continue  # what is there now?
            self._epochs.add(epoch)
            if session_id == self._zookeeper.session_id:
                self._session_id = session_id
                return epoch

    async def _wait_for_death(self, registration: Registration, node: Node) -> None:
        """Return when the owner of the node is certainly dead."""
        path = path_of(registration.broker_id)
        other = decode(registration.broker_id, node)
        deadline = asyncio.get_running_loop().time() + 2 * self._zookeeper.session_timeout
        has_said = False
        while True:
            # This broker listens already, so no other one listens on the same addresses.
            life = await life_of(each for each in other.listeners if not _has(registration, each))
            where = ", ".join(f"{each.host}:{each.port}" for each in other.listeners)
            if life is Life.ALIVE:
                raise BrokerIdInUse(f"broker id {registration.broker_id} is in use by {where}")
            if life is Life.DEAD:
                return
            if asyncio.get_running_loop().time() > deadline:
                raise BrokerIdInUse(
                    f"broker id {registration.broker_id} is in use by {where}, which cannot be reached from here but "
                    "has a ZooKeeper session; stop that broker or choose another id"
                )
            if not has_said:
                has_said = True
                log.warning("broker id %d is registered by %s; waiting for its end", registration.broker_id, where)
            if await self._is_gone(path, node.stat.czxid):
                return

    async def _is_gone(self, path: str, czxid: int) -> bool:
        watch = self._zookeeper.watch()
        stat = await self._zookeeper.exists(path, watch)
        if stat is None or stat.czxid != czxid:
            return True
        try:
            await asyncio.wait_for(watch.wait(), self._zookeeper.session_timeout / 4)
        except TimeoutError:
            pass
        return False

    # ── all brokers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, on_change: Callable[[Mapping[int, Registration]], None]) -> None:
        """Call back on the event loop with all live brokers, now and after every change."""
        self._on_change = on_change
        self._observer = Observer(self._zookeeper, "watching the brokers", self._refresh)

    async def _refresh(self, watch: Watch) -> None:
        ids = [int(name) for name in await self._zookeeper.children(BROKER_IDS, watch)]
        nodes = await asyncio.gather(*(self._zookeeper.find(path_of(broker_id)) for broker_id in ids))
        members = {each: decode(each, node) for each, node in zip(ids, nodes, strict=True) if node is not None}
        if members != self.members:
            self.members = members
            self._on_change(members)

    async def remove(self, broker_id: int, epoch: int) -> bool:
        """Remove a broker that is certainly dead. Return False if it has another epoch or is gone already."""
        path = path_of(broker_id)
        while True:
            guard = (await self._zookeeper.get(BROKER_IDS)).stat.version
            stat = await self._zookeeper.exists(path)
            if stat is None or stat.czxid != epoch:
                return False
            try:
                await self._zookeeper.multi(Check(BROKER_IDS, guard), Delete(path))
            except (ConnectionLost, Rejected):
                continue
            return True


def encode(registration: Registration) -> bytes:
    """Return the data of a broker's node: everything but the epoch."""
    fields = registration._asdict()
    del fields["epoch"]
    fields["listeners"] = [endpoint._asdict() for endpoint in registration.listeners]
    return json.dumps(fields).encode()


def decode(broker_id: int, node: Node) -> Registration:
    fields = json.loads(node.data)
    listeners = tuple(Endpoint(each["name"], each["host"], each["port"]) for each in fields["listeners"])
    return Registration(broker_id, node.stat.czxid, fields["previous_epoch"], listeners, fields["rack"])


def _has(registration: Registration, endpoint: Endpoint) -> bool:
    return any((each.host, each.port) == (endpoint.host, endpoint.port) for each in registration.listeners)


def path_of(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"
