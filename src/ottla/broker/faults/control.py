"""All operations of the testing kit by name, on the broker's event loop. Python and HTTP use the same ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.faults.injector import Injector
from ottla.broker.faults.rules import Rule, Rules, WrongFault
from ottla.broker.inspection import group_as_json, records_as_json, require_groups
from ottla.coordinator.coordinator import Coordinator
from ottla.runtime.clock import ManualClock

if TYPE_CHECKING:
    from ottla.broker.server import BrokerServer

Values = Mapping[str, Any]


class Control:
    """Injects faults into one broker."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._rules = Rules()
        self._injector: Injector | None = None
        self._operations: dict[str, Callable[[Values], Any]] = {
            "add": self._add,
            "remove": self._remove,
            "list": lambda _: [rule.shown() for rule in self._rules.all],
            "clear": self._clear,
            "rebalance": self._rebalance,
            "expire_session": self._expire_session,
            "fill_disk": self._fill_disk,
            "free_disk": self._free_disk,
            "advance": self._advance,
            "records": lambda values: records_as_json(server.node, str(_given(values, "topic"))),
            "group": lambda values: group_as_json(server.node, str(_given(values, "group"))),
        }

    async def run(self, operation: str, values: Values) -> Any:
        """Run an operation and return its result as JSON values. `WrongFault` says what is wrong with it."""
        if operation not in self._operations:
            raise WrongFault(f"there is no operation {operation!r}: use one of {', '.join(self._operations)}")
        result = self._operations[operation](values)
        return await result if asyncio.iscoroutine(result) else result

    # ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, values: Values) -> Any:
        rule = self._rules.add(Rule.read(values))
        self._inject()
        return rule.shown()

    def _remove(self, values: Values) -> Any:
        rule = self._rules.remove(int(_given(values, "id")))
        self._inject()
        return None if rule is None else rule.shown()

    def _clear(self, _: Values) -> Any:
        self._rules.all.clear()
        self._inject()
        self._free_disk({})

    def _inject(self) -> None:
        """Stand in front of the dispatcher only while there are rules."""
        if self._rules.all and self._injector is None:
            self._injector = Injector(self._server.node, self._rules)
        self._server.inject(self._injector if self._rules.all else None)

    # ── groups ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _rebalance(self, values: Values) -> None:
        reason = str(values.get("reason") or "a test asked for it")
        group = str(_given(values, "group"))
        require_groups(self._server.node, group)
        await self._server.node.groups.run(group, Coordinator.force_rebalance, group, reason)

    async def _expire_session(self, values: Values) -> list[str]:
        group, member = str(_given(values, "group")), values.get("member")
        members = None if member is None else (str(member),)
        require_groups(self._server.node, group)
        expired = await self._server.node.groups.run(group, Coordinator.expire_sessions, group, members)
        if members is not None and not expired:
            raise WrongFault(f"group {group} has no member {member}")
        return list(expired)

    # ── disks and time ────────────────────────────────────────────────────────────────────────────────────────────

    def _fill_disk(self, _: Values) -> None:
        """Let all appends fail, as on a full disk. A broker that can live without the disk takes it offline."""
        self._server.node.logs.fill_disks(True)

    def _free_disk(self, _: Values) -> None:
        self._server.node.logs.fill_disks(False)

    async def _advance(self, values: Values) -> int:
        clock = self._server.clock
        if not isinstance(clock, ManualClock):
            raise WrongFault("time passes by itself in this broker: start it with a manual clock")
        by = _given(values, "milliseconds")
        if not isinstance(by, int) or isinstance(by, bool) or by < 0:
            raise WrongFault(f"milliseconds must be a whole number of at least 0, not {by!r}")
        clock.move(by)
        await self._server.time_passed()
        return clock.now()


def _given(values: Values, name: str) -> Any:
    if values.get(name) is None:
        raise WrongFault(f"{name} is missing")
    return values[name]
