"""Brokers that break a promise, to see that the checker finds it.

    python -m tests.cluster.broken NAME broker --config FILE

is `ottla broker` with one rule of the product replaced from outside.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

from ottla.cluster.member import ClusterBroker

from .clusters import PlainCluster


def acknowledge_early() -> None:
    """``acks=all``, commits and transactions are answered before the followers have the records."""
    from ottla.broker.partition import Partition

    _replace(Partition, "committed", lambda self, offset: None)


def show_uncommitted() -> None:
    """Consumers read up to the end of the leader's log."""
    from ottla.broker.partition import Partition

    def readable_end(self: Partition, *, read_committed: bool) -> int:
        return self.log.log_end_offset

    _replace(Partition, "readable_end", readable_end)


def ignore_divergence() -> None:
    """A leader does not tell a follower that its log differs."""
    from ottla.replication import leader

    def divergence(log: Any, fetch_offset: int, last_fetched_epoch: int) -> None:
        return None

    _replace(leader, "divergence", divergence)


def raise_watermark_early() -> None:
    """The high watermark is the end of the leader's log, whatever its followers have."""
    from ottla.replication.leader import Leader

    def advance(self: Leader, *, now: int) -> bool:
        before, self.high_watermark = self.high_watermark, self._log.log_end_offset
        return self.high_watermark > before

    _replace(Leader, "advance", advance)
    _replace(Leader, "appended", advance)


def _replace(owner: object, name: str, value: object) -> None:
    """Replace a rule. A name that does not exist any more is an error: nothing would be broken."""
    mock.patch.object(owner, name, value).start()


BREAKS: dict[str, Callable[[], None]] = {
    "early-ack": acknowledge_early,
    "uncommitted-reads": show_uncommitted,
    "no-divergence": ignore_divergence,
    "eager-watermark": raise_watermark_early,
}


class BrokenCluster(PlainCluster):
    """A cluster of broken brokers."""

    def __init__(self, break_name: str, **options: Any) -> None:
        super().__init__(**options)
        self._break_name = break_name

    def prepare(self, broker: ClusterBroker) -> None:
        broker.command = [sys.executable, "-m", "tests.cluster.broken", self._break_name]


def main() -> int:
    BREAKS[sys.argv.pop(1)]()
    from ottla.cli.main import main as ottla

    return ottla()


if __name__ == "__main__":
    sys.exit(main())
