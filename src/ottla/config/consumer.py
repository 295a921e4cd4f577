"""The configuration table of the consumer. Names and defaults are Kafka's. client.py has the shared rows.

`checked` has the rules that involve several names. Assignors and interceptors are Python objects or import paths
(``package.module.Class``). The consumer imports them, not this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ottla.config.client import ClientConfig
from ottla.config.fields import Check, at_least, boolean, int32, one_of, plugin, plugins, string
from ottla.config.table import named, rows
from ottla.errors import ConfigError
from ottla.types import Millis

CLASSIC = "classic"
CONSUMER = "consumer"
READ_COMMITTED = "read_committed"
BY_DURATION = "by_duration:"
DEFAULT_ASSIGNORS = ("range", "cooperative-sticky")

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def parse_duration(text: str) -> Millis | None:
    """Return the milliseconds of an ISO 8601 duration (days and smaller units), None if the text is not one.

    >>> parse_duration("PT1H30M"), parse_duration("P2D"), parse_duration("1h")
    (5400000, 172800000, None)
    """
    found = _DURATION.fullmatch(text.strip().upper())
    if found is None or not any(found.groupdict().values()):
        return None
    parts = {name: float(value or 0) for name, value in found.groupdict().items()}
    hours = parts["days"] * 24 + parts["hours"]
    return int(((hours * 60 + parts["minutes"]) * 60 + parts["seconds"]) * 1000)


def _is_reset(value: str) -> bool:
    if value.startswith(BY_DURATION):
        return parse_duration(value[len(BY_DURATION) :]) is not None
    return value in ("earliest", "latest", "none")


def _reset(value: str) -> str:
    known = _RESETS_ELSEWHERE.get(value)
    if known is not None:
        raise ValueError(f"write {known}, as in Kafka")
    return value


_RESETS_ELSEWHERE = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest"}
_RESET = Check("earliest, latest, none, or by_duration: followed by an ISO 8601 duration (by_duration:PT1H)", _is_reset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The configuration of a consumer."""

    what: ClassVar[str] = "consumer configuration"

    group_id: str | None = string(None, "The group of the consumer. Required to subscribe and to commit.")
    group_instance_id: str | None = string(
        None, "A permanent name that makes this a static member. Its restart moves no partition."
    )
    group_protocol: str = string(
        CLASSIC,
        "`classic`: a member computes the assignment. `consumer`: the broker does (KIP-848).",
        one_of(CLASSIC, CONSUMER),
        item=str.lower,
    )
    group_remote_assignor: str | None = string(
        None,
        "The broker's assignor with group.protocol=consumer: uniform or range. If not set, the broker chooses.",
    )
    partition_assignment_strategy: tuple[Any, ...] = plugins(
        DEFAULT_ASSIGNORS,
        "The assignors that this member supports, in order of preference. Each is a name (range, roundrobin, sticky, "
        "cooperative-sticky), a class, an instance, or an import path (package.module.Class).",
    )
    auto_offset_reset: str = string(
        "latest",
        "Where to start without a committed offset, or when that offset no longer exists: earliest, latest, none "
        "(raise an error), by_duration:PT1H (an hour ago).",
        _RESET,
        item=_reset,
    )
    enable_auto_commit: bool = boolean(
        True, "Commit polled offsets automatically: periodically, before a rebalance, and on close."
    )
    auto_commit_interval_ms: int = int32(5_000, "The time between two automatic commits.", at_least(0))
    max_poll_records: int = int32(500, "The most records that one poll returns.", at_least(1))
    max_poll_interval_ms: int = int32(
        300_000,
        "A member that does not poll for this long leaves the group. Others then get its partitions.",
        at_least(1),
    )
    session_timeout_ms: int = int32(
        45_000, "The coordinator removes a member without a heartbeat for this long (classic).", at_least(1)
    )
    heartbeat_interval_ms: int = int32(3_000, "The time between two heartbeats (classic).", at_least(1))
    fetch_min_bytes: int = int32(1, "The broker waits for this many bytes before it responds to a fetch.", at_least(0))
    fetch_max_wait_ms: int = int32(500, "The longest that the broker waits for fetch.min.bytes.", at_least(0))
    fetch_max_bytes: int = int32(
        52_428_800, "The most bytes in one fetch response. A larger first batch is still returned.", at_least(0)
    )
    max_partition_fetch_bytes: int = int32(
        1_048_576, "The most bytes of one partition in a fetch response.", at_least(0)
    )
    isolation_level: str = string(
        "read_uncommitted",
        "`read_committed` skips records of aborted transactions and stops before open ones.",
        one_of("read_uncommitted", READ_COMMITTED),
    )
    check_crcs: bool = boolean(True, "Verify the checksum of each batch.")
    key_deserializer: Any = plugin(
        None, "Converts bytes to keys: a function, a name (`string`, `json`), or a Deserializer (`ottla.serializers`)."
    )
    value_deserializer: Any = plugin(None, "Converts bytes to values, like key.deserializer.")
    interceptor_classes: tuple[Any, ...] = plugins((), "ConsumerInterceptors, as classes, instances or import paths.")
    exclude_internal_topics: bool = boolean(True, "Patterns do not match internal topics such as __consumer_offsets.")
    allow_auto_create_topics: bool = boolean(
        True, "A request for a missing topic may create it, if the broker allows that."
    )
    default_api_timeout_ms: int = int32(60_000, "The time limit of a call without its own timeout.", at_least(0))

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        # dataclass(slots=True) makes a new class, which super() without arguments does not know.
        config = super(ConsumerConfig, cls).parse(values)
        if "enable.auto.commit" in named(cls, values) and config.enable_auto_commit and config.group_id is None:
            raise ConfigError(
                "enable.auto.commit=true requires group.id. Set group.id, or leave enable.auto.commit out to consume "
                "without a group."
            )
        return config

    @property
    def auto_commits(self) -> bool:
        """Without a group there is nothing to commit to."""
        return self.enable_auto_commit and self.group_id is not None

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == READ_COMMITTED

    @property
    def reset_duration_ms(self) -> Millis | None:
        """How far back by_duration goes. None with other values of auto.offset.reset."""
        if not self.auto_offset_reset.startswith(BY_DURATION):
            return None
        return parse_duration(self.auto_offset_reset[len(BY_DURATION) :])

    def checked(self) -> Self:
        ClientConfig.checked(self)
        for problem in self._problems():
            raise ConfigError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        if self.group_id == "":
            yield "group.id must not be empty. Leave it out to consume without a group."
        if self.group_instance_id == "":
            yield "group.instance.id must not be empty. Leave it out for a dynamic member."
        if self.group_instance_id is not None and self.group_id is None:
            yield "group.instance.id requires group.id."
        if self.group_protocol == CONSUMER:
            yield from self._problems_with_consumer_protocol()
        else:
            yield from self._problems_with_classic_protocol()

    def _problems_with_consumer_protocol(self) -> Iterator[str]:
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            if getattr(self, name.replace(".", "_")) != rows(type(self))[name].default:
                yield (
                    f"{name} cannot be set with group.protocol=consumer, because the broker decides. Leave it out. "
                    "Use group.remote.assignor, or the group's configuration on the broker."
                )

    def _problems_with_classic_protocol(self) -> Iterator[str]:
        if not self.partition_assignment_strategy:
            yield "partition.assignment.strategy must have at least one assignor."
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            yield (
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be lower than session.timeout.ms "
                f"({self.session_timeout_ms}). A third of it is a good value."
            )
        if self.group_remote_assignor is not None:
            yield "group.remote.assignor requires group.protocol=consumer. Use partition.assignment.strategy instead."
