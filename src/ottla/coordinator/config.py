"""The settings of the group coordinator, under Kafka's names with underscores. The caller has validated them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.types import Millis

NO_LIMIT = 2**31 - 1


class Times(NamedTuple):
    """How long the members of a consumer group may be silent, and how often they send heartbeats."""

    session_timeout: Millis
    heartbeat_interval: Millis


TimesOf: TypeAlias = Callable[[str], Times | None]
"""Returns the times that are set for a single group, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The part of the broker's configuration that a coordinator needs."""

    group_min_session_timeout_ms: Millis = 6_000
    group_max_session_timeout_ms: Millis = 1_800_000
    group_initial_rebalance_delay_ms: Millis = 3_000
    group_max_size: int = NO_LIMIT
    group_new_member_join_timeout_ms: Millis = 300_000
    """How long the join of a new member may wait before the member is removed. Kafka has no name for it."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: Millis = 10_080 * 60_000
    """From offsets.retention.minutes."""
    offsets_retention_check_interval_ms: Millis = 600_000

    group_consumer_session_timeout_ms: Millis = 45_000
    group_consumer_min_session_timeout_ms: Millis = 45_000
    group_consumer_max_session_timeout_ms: Millis = 60_000
    group_consumer_heartbeat_interval_ms: Millis = 5_000
    group_consumer_min_heartbeat_interval_ms: Millis = 5_000
    group_consumer_max_heartbeat_interval_ms: Millis = 15_000
    group_consumer_max_size: int = NO_LIMIT
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: Millis = 600_000

    @property
    def times(self) -> Times:
        """The times of consumer groups without their own."""
        return Times(self.group_consumer_session_timeout_ms, self.group_consumer_heartbeat_interval_ms)

    @property
    def upgrade_enabled(self) -> bool:
        return self.group_consumer_migration_policy.lower() in ("bidirectional", "upgrade")

    @property
    def downgrade_enabled(self) -> bool:
        return self.group_consumer_migration_policy.lower() in ("bidirectional", "downgrade")
