"""All operations of the testing kit by name, on the broker's event loop. Python and HTTP use the same ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.faults.injector import Injector
from ottla.broker.faults.rules import Rule, Rules, WrongFault, number, text
from ottla.broker.inspection import group_as_json, records_as_json, require_groups
from ottla.coordinator.coordinator import Coordinator
from ottla.runtime.clock import ManualClock

if TYPE_CHECKING:
    from ottla.broker.server import BrokerServer

Values = Mapping[str, Any]
#: Times of records have 64 bits.
_MOST_MS = 1000 * 365 * 24 * 60 * 60 * 1000


class Control:
    """Injects faults into one broker."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._rules = Rules()
        self._injector: Injector | None = None
        self._full_disks: set[int] = set()
        self._last_full_disk = 0
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
            "records": lambda values: records_as_json(server.node, _text(values, "topic")),
            "group": lambda values: group_as_json(server.node, _text(values, "group")),
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
        rule = self._rules.remove(number(_given(values, "id"), "id", 0))
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
        reason = text(values.get("reason") or "a test asked for it", "reason")
        group = _text(values, "group")
        require_groups(self._server.node, group)
        await self._server.node.groups.run(group, Coordinator.force_rebalance, group, reason)

    async def _expire_session(self, values: Values) -> list[str]:
        group, member = _text(values, "group"), values.get("member")
        members = None if member is None else (text(member, "member"),)
        require_groups(self._server.node, group)
        expired = await self._server.node.groups.run(group, Coordinator.expire_sessions, group, members)
        if members is not None and not expired:
            raise WrongFault(f"group {group} has no member {member}")
        return list(expired)

    # ── disks and time ────────────────────────────────────────────────────────────────────────────────────────────

    def _fill_disk(self, _: Values) -> int:
        """Let all appends fail, as on a full disk. A broker that can live without the disk takes it offline."""
        self._last_full_disk += 1
        self._full_disks.add(self._last_full_disk)
        self._server.node.logs.fill_disks(True)
        return self._last_full_disk

    def _free_disk(self, values: Values) -> None:
        """End one of these faults, or all without an id."""
        if values.get("id") is None:
            self._full_disks.clear()
        else:
            self._full_disks.discard(number(values["id"], "id", 0))
        self._server.node.logs.fill_disks(bool(self._full_disks))

    async def _advance(self, values: Values) -> int:
        clock = self._server.clock
        if not isinstance(clock, ManualClock):
            raise WrongFault("time passes by itself in this broker: start it with a manual clock")
        by = number(_given(values, "milliseconds"), "milliseconds", 0)
        if by > _MOST_MS:
            raise WrongFault(f"milliseconds must be at most {_MOST_MS}, which is about 1000 years, not {by}")
        clock.move(by)
        await self._server.time_passed()
        return clock.now()


def _text(values: Values, name: str) -> str:
    return text(_given(values, name), name)


def _given(values: Values, name: str) -> Any:
    if values.get(name) is None:
        raise WrongFault(f"{name} is missing")
    return values[name]
