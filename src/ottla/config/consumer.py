"""The configuration of a consumer: Kafka's names and defaults.

What all clients share is in client.py. Rules that tie names together are in `checked`. Assignors and interceptors are
Python objects or the places where they are (``package.module.Class``); who uses them looks them up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ottla.config.client import ClientConfig
from ottla.config.fields import Check, at_least, boolean, int32, one_of, plugin, plugins, string
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
    """Milliseconds of an ISO 8601 duration of days and less, None if it is none.

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


_RESET = Check("earliest, latest, none or by_duration: with an ISO 8601 duration (by_duration:PT1H)", _is_reset)
_SOME = Check("a list with at least one assignor", lambda values: len(values) > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The configuration of a consumer."""

    what: ClassVar[str] = "consumer configuration"

    group_id: str | None = string(None, "The group that the consumer belongs to; needed to subscribe and to commit.")
    group_instance_id: str | None = string(
        None, "A name of this member that survives restarts: a static member, whose restart moves no partition."
    )
    group_protocol: str = string(
        CLASSIC,
        "`classic`: members assign among themselves; `consumer`: the broker assigns (KIP-848).",
        one_of(CLASSIC, CONSUMER),
        item=str.lower,
    )
    group_remote_assignor: str | None = string(
        None,
        "The broker's assignor to use with group.protocol=consumer: uniform or range; not set, the broker chooses.",
    )
    partition_assignment_strategy: tuple[Any, ...] = plugins(
        DEFAULT_ASSIGNORS,
        "The assignors that this member supports, the preferred one first: names (range, roundrobin, sticky, "
        "cooperative-sticky), classes, instances, or where a class is (package.module.Class).",
    )
    auto_offset_reset: str = string(
        "latest",
        "Where to start when nothing was committed, or what was committed does not exist any more: earliest, latest, "
        "none (an error), by_duration:PT1H (an hour back).",
        _RESET,
    )
    enable_auto_commit: bool = boolean(
        True, "Commit what was polled by itself: from time to time, before a rebalance, and on close."
    )
    auto_commit_interval_ms: int = int32(5_000, "The time between two automatic commits.", at_least(0))
    max_poll_records: int = int32(500, "How many records one poll returns at most.", at_least(1))
    max_poll_interval_ms: int = int32(
        300_000,
        "A member that does not poll for this long leaves the group, so that others get its partitions.",
        at_least(1),
    )
    session_timeout_ms: int = int32(
        45_000, "A member that the coordinator has not heard of for this long is removed (classic).", at_least(1)
    )
    heartbeat_interval_ms: int = int32(3_000, "The time between two heartbeats (classic).", at_least(1))
    receive_buffer_bytes: int = int32(
        -1,
        "The receive buffer of a connection's socket (SO_RCVBUF). Kafka's 65536 makes the kernel wake the consumer "
        "many times for one fetch; -1 lets the operating system choose.",
        at_least(-1),
    )
    fetch_min_bytes: int = int32(1, "The broker waits until this much is there before it answers a fetch.", at_least(0))
    fetch_max_wait_ms: int = int32(500, "How long it waits for that.", at_least(0))
    fetch_max_bytes: int = int32(
        52_428_800, "How much one fetch brings at most; a first batch that is larger comes all the same.", at_least(0)
    )
    max_partition_fetch_bytes: int = int32(1_048_576, "How much of it may be of one partition.", at_least(0))
    isolation_level: str = string(
        "read_uncommitted",
        "`read_committed` leaves out records of aborted transactions and stops before open ones.",
        one_of("read_uncommitted", READ_COMMITTED),
    )
    check_crcs: bool = boolean(True, "Check the checksum of each batch.")
    key_deserializer: Any = plugin(
        None, "Makes keys of bytes: a function, its name (`string`, `json`), or a Deserializer (`ottla.serializers`)."
    )
    value_deserializer: Any = plugin(None, "Makes values of bytes, as key.deserializer.")
    interceptor_classes: tuple[Any, ...] = plugins((), "Classes, instances or places of ConsumerInterceptors.")
    exclude_internal_topics: bool = boolean(True, "A pattern never matches internal topics such as __consumer_offsets.")
    allow_auto_create_topics: bool = boolean(
        True, "Asking for a topic that does not exist may create it, if the broker is set to do so."
    )
    default_api_timeout_ms: int = int32(60_000, "How long a call that names no timeout may take.", at_least(0))

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        named = cls.named(values)
        config = super(ConsumerConfig, cls).parse(named)
        if "enable.auto.commit" in named and config.enable_auto_commit and config.group_id is None:
            raise ConfigError(
                "enable.auto.commit=true needs group.id, under which offsets are committed: give one, or leave "
                "enable.auto.commit out to consume without a group."
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
        """How far back by_duration goes; None with the other kinds of auto.offset.reset."""
        if not self.auto_offset_reset.startswith(BY_DURATION):
            return None
        return parse_duration(self.auto_offset_reset[len(BY_DURATION) :])

    def checked(self) -> Self:
        # dataclass(slots=True) makes a new class, which super() without arguments does not know.
        ClientConfig.checked(self)
        for problem in self._problems():
            raise ConfigError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        if self.group_id == "":
            yield "group.id must not be empty: leave it out to consume without a group."
        if self.group_instance_id == "":
            yield "group.instance.id must not be empty: leave it out for a dynamic member."
        if self.group_instance_id is not None and self.group_id is None:
            yield "group.instance.id needs group.id."
        if self.group_protocol == CONSUMER:
            yield from self._problems_with_consumer_protocol()
        else:
            yield from self._problems_with_classic_protocol()

    def _problems_with_consumer_protocol(self) -> Iterator[str]:
        rows = self.rows()
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            if getattr(self, name.replace(".", "_")) != rows[name].default:
                yield (
                    f"{name} cannot be set with group.protocol=consumer, where the broker decides about it: "
                    "leave it out, and see group.remote.assignor or the group's configuration on the broker."
                )

    def _problems_with_classic_protocol(self) -> Iterator[str]:
        if not self.partition_assignment_strategy:
            yield f"partition.assignment.strategy must be {_SOME.says}."
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            yield (
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be lower than session.timeout.ms "
                f"({self.session_timeout_ms}), best a third of it."
            )
        if self.group_remote_assignor is not None:
            yield "group.remote.assignor needs group.protocol=consumer: see partition.assignment.strategy."
