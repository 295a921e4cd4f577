"""Who is the controller: the owner of the ephemeral node `/controller`.

Each election creates that node and sets `/controller_epoch` in one transaction. The version of `/controller_epoch` is
the epoch of the controller. Every write of a controller checks it, so one that was replaced cannot write.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

from ottla.metadata.values import Endpoint
from ottla.zookeeper.client import Observer, Watch, ZooKeeper
from ottla.zookeeper.layout import CONTROLLER, CONTROLLER_EPOCH
from ottla.zookeeper.membership import Life, decode, life_of, path_of
from ottla.zookeeper.values import Check, ConnectionLost, Create, Delete, Node, Rejected, SessionState, Set

log = logging.getLogger(__name__)

_RESIGN_SECONDS = 2.0


class Controller(NamedTuple):
    """A controller. `czxid` tells one term of the same broker from another."""

    broker_id: int
    czxid: int


class Election:
    """The election of the controller, with this broker as a candidate.

        election = Election(zookeeper, broker_id, on_controller)
        election.campaign(on_elected, on_deposed)

    `on_controller` gets each new controller, and None when there is none. All callbacks run on the event loop.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        broker_id: int,
        on_controller: Callable[[Controller | None], None] = lambda controller: None,
    ) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._on_controller = on_controller
        self._on_elected: Callable[[int], None] = lambda epoch: None
        self._on_deposed: Callable[[], None] = lambda: None
        self._observer: Observer | None = None
        self._doubt: asyncio.TimerHandle | None = None
        self._is_first_look = True
        self._listeners: set[tuple[str, int]] = set()
        self._czxid = -1
        """Of the node that this broker created last."""
        self.controller: Controller | None = None
        """The controller as far as this broker knows."""
        self.epoch: int | None = None
        """The epoch of this broker as the controller, or None if it is not."""
        zookeeper.on_state(self._state_changed)

    @property
    def controller_id(self) -> int | None:
        return None if self.controller is None else self.controller.broker_id

    def campaign(
        self,
        on_elected: Callable[[int], None],
        on_deposed: Callable[[], None],
        listeners: Collection[Endpoint] = (),
    ) -> None:
        """Become the controller as soon as there is none, now and later.

        `on_elected` gets the epoch. `on_deposed` is called at once when this broker is no longer the controller, or
        cannot know that it still is. This broker listens on `listeners` already, so no earlier life of it does.
        """
        self._listeners = {(each.host, each.port) for each in listeners}
        self._on_elected = on_elected
        self._on_deposed = on_deposed
        self._observer = Observer(self._zookeeper, "the election of the controller", self._refresh)

    async def stop(self) -> None:
        """Stop being a candidate, and give up being the controller. `on_deposed` is called if this broker was it."""
        if self._observer is not None:
            await self._observer.stop()
        self._forget_doubt()
        if self.epoch is not None:
            self._depose("it stops")
            with contextlib.suppress(TimeoutError):  # then the end of the session removes the node
                await asyncio.wait_for(self.depose_dead(self._broker_id, self._czxid), _RESIGN_SECONDS)

    async def depose_dead(self, controller_id: int, czxid: int) -> bool:
        """Remove a controller that is certainly dead. Return False if there is another one or none."""
        while True:
            guard = (await self._zookeeper.get(CONTROLLER_EPOCH)).stat.version
            node = await self._zookeeper.find(CONTROLLER)
            if node is None or _decode(node) != Controller(controller_id, czxid):
                return False
            try:
                await self._zookeeper.multi(Check(CONTROLLER_EPOCH, guard), Delete(CONTROLLER))
            except (ConnectionLost, Rejected):
                continue
            return True

    async def _refresh(self, watch: Watch) -> None:
        # The epoch first: if it is still the same when this broker stands, so is the controller.
        epoch_node, _, node = await asyncio.gather(
            self._zookeeper.get(CONTROLLER_EPOCH),
            self._zookeeper.exists(CONTROLLER, watch),
            self._zookeeper.find(CONTROLLER),
        )
        self._saw(None if node is None else _decode(node))
        is_first, self._is_first_look = self._is_first_look, False
        if node is None or (self.epoch is None and (self._is_ours(node) or (is_first and await self._is_left(node)))):
            await self._stand(epoch_node.stat.version, () if node is None else (Delete(CONTROLLER),))
            watch.wake()

    def _is_ours(self, node: Node) -> bool:
        """Whether this process has created the node: the answer was lost, or it gave up too early."""
        return node.stat.owner == self._zookeeper.session_id or node.stat.czxid == self._czxid

    async def _is_left(self, node: Node) -> bool:
        """Whether an earlier life of this broker has left the node. Its process must be gone, by its ports."""
        if _decode(node).broker_id != self._broker_id:
            return False
        registered = await self._zookeeper.find(path_of(self._broker_id))
        if registered is None or registered.stat.owner != node.stat.owner:
            return False
        listeners = decode(self._broker_id, registered).listeners
        return await life_of(each for each in listeners if (each.host, each.port) not in self._listeners) is Life.DEAD

    async def _stand(self, epoch: int, remove: tuple[Delete, ...]) -> None:
        data = json.dumps({"broker_id": self._broker_id}).encode()
        session_id = self._zookeeper.session_id
        try:
            czxid = await self._zookeeper.multi(
                *remove,
                Create(CONTROLLER, data, is_ephemeral=True),
                Set(CONTROLLER_EPOCH, str(epoch + 1).encode(), epoch),
            )
        except (ConnectionLost, Rejected):
            return  # who is it now?
        if session_id == self._zookeeper.session_id and self._zookeeper.state is SessionState.CONNECTED:
            log.info("this broker is the controller, epoch %d", epoch + 1)
            self.epoch, self._czxid = epoch + 1, czxid
            self._set_controller(Controller(self._broker_id, czxid))
            self._on_elected(self.epoch)

    def _saw(self, controller: Controller | None) -> None:
        if controller != self.controller:
            self._depose("another one was elected" if controller else "its node was removed")
            self._set_controller(controller)

    def _set_controller(self, controller: Controller | None) -> None:
        if controller != self.controller:
            self.controller = controller
            self._on_controller(controller)

    def _state_changed(self, state: SessionState) -> None:
        self._forget_doubt()
        if state is SessionState.LOST:
            self._depose("its ZooKeeper session is lost")
        elif state is SessionState.SUSPENDED:
            # A broken connection is noticed two thirds of the session timeout after the last answer, at the latest.
            loop = asyncio.get_running_loop()
            reason = "ZooKeeper cannot be reached"
            self._doubt = loop.call_later(self._zookeeper.session_timeout / 3, self._depose, reason)

    def _forget_doubt(self) -> None:
        if self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None

    def _depose(self, reason: str) -> None:
        if self.epoch is not None:
            log.warning("this broker is no longer the controller of epoch %d: %s", self.epoch, reason)
            self.epoch = None
            self._on_deposed()
            self._set_controller(None)


def _decode(node: Node) -> Controller:
    return Controller(json.loads(node.data)["broker_id"], node.stat.czxid)
