"""Look up partitions and offsets for a query: first and last offsets, offsets by time, committed offsets.

A query has one `Lookup`, with one connection.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping

from ottla.clients.admin.blocking import Admin
from ottla.errors import KafkaError, UnknownTopicOrPartition
from ottla.spark.options import (
    COMMITTED,
    EARLIEST,
    EARLIEST_NUMBER,
    LATEST,
    LATEST_NUMBER,
    Bound,
    Offsets,
    OptionError,
    ReadOptions,
)
from ottla.types import Millis, TopicPartition

log = logging.getLogger("ottla.spark")


class Lookup:
    """The lookups of one query; connects on first use."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._admin = Admin(options.admin_config())
        self._partitions: list[TopicPartition] = []
        self._asked: float | None = None

    def close(self) -> None:
        self._admin.close()

    # ── Partitions ────────────────────────────────────────────────────────────────────────────────────────────────

    def partitions(self, *, fresh: bool = True) -> list[TopicPartition]:
        """The selected partitions that exist now; `fresh=False` may return cached ones."""
        now = time.monotonic()
        if fresh or self._asked is None or now - self._asked > self._options.partitions_ttl_ms / 1000:
            self._partitions = self._find()
            self._asked = now
        return self._partitions

    def _find(self) -> list[TopicPartition]:
        topics = self._options.topics
        if topics.pattern is not None:
            pattern = re.compile(topics.pattern)
            names = [name for name in self._admin.list_topics() if pattern.fullmatch(name)]
        elif topics.partitions is not None:
            names = sorted({key.topic for key in topics.partitions})
        else:
            names = list(topics.names or ())
        found = self._admin.describe_topics(names, raise_errors=False)
        for error in found.errors.values():
            if not isinstance(error, UnknownTopicOrPartition):
                raise error
        keys = [TopicPartition(one.name, part.partition) for one in found.values() for part in one.partitions]
        if topics.partitions is not None:
            keys = [key for key in keys if key in set(topics.partitions)]
        return sorted(keys)

    def existing(self) -> list[TopicPartition]:
        """The selected partitions at the start of a query; a missing topic is an error."""
        keys = self.partitions()
        topics = self._options.topics
        there = {key.topic for key in keys}
        missing = sorted(set(topics.names or ()) - there)
        if missing:
            raise OptionError(f"topic {missing[0]} does not exist: create it, or correct its name")
        unknown = sorted(set(topics.partitions or ()) - set(keys))
        if unknown:
            raise OptionError(f"partition {unknown[0]} of the option assign does not exist")
        return keys

    # ── Offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def earliest(self, keys: Iterable[TopicPartition]) -> Offsets:
        return self._offsets(dict.fromkeys(keys, EARLIEST))

    def latest(self, keys: Iterable[TopicPartition]) -> Offsets:
        """The ends of the partitions; with read_committed, the first open transaction."""
        return self._offsets(dict.fromkeys(keys, LATEST))

    def _offsets(self, wanted: Mapping[TopicPartition, str | int]) -> Offsets:
        """Offsets of partitions, without deleted ones."""
        if not wanted:
            return {}
        found = self._admin.list_offsets(wanted, isolation_level=self._options.isolation_level, raise_errors=False)
        for error in found.errors.values():
            if not isinstance(error, UnknownTopicOrPartition):
                raise error
        return {key: one.offset for key, one in found.items()}

    def start(self, keys: list[TopicPartition]) -> Offsets:
        """The start of a new query."""
        bound = self._options.start
        if bound.word == COMMITTED:
            return self._committed(keys)
        return self._bound("starting", bound, keys)

    def end(self, keys: list[TopicPartition]) -> Offsets:
        """Where a batch query ends."""
        return self._bound("ending", self._options.end, keys)

    def _bound(self, which: str, bound: Bound, keys: list[TopicPartition]) -> Offsets:
        if bound.timestamp is not None:
            return self._at_times(which, dict.fromkeys(keys, bound.timestamp))
        if bound.timestamps is not None:
            self._check_all_named(f"{which}OffsetsByTimestamp", bound.timestamps, keys)
            return self._at_times(which, bound.timestamps)
        if bound.offsets is not None:
            self._check_all_named(f"{which}Offsets", bound.offsets, keys)
            words = {EARLIEST_NUMBER: EARLIEST, LATEST_NUMBER: LATEST}
            asked = self._offsets({key: words[one] for key, one in bound.offsets.items() if one in words})
            return {**bound.offsets, **asked}
        return self.earliest(keys) if bound.word == EARLIEST else self.latest(keys)

    def _check_all_named(self, option: str, named: Mapping[TopicPartition, int], keys: list[TopicPartition]) -> None:
        missing, unknown = sorted(set(keys) - set(named)), sorted(set(named) - set(keys))
        if missing:
            raise OptionError(
                f"option {option} does not name partition {missing[0]}: it must name all partitions that are read"
            )
        if unknown:
            raise OptionError(f"option {option} names partition {unknown[0]}, which is not read or does not exist")

    def _at_times(self, which: str, times: Mapping[TopicPartition, Millis]) -> Offsets:
        found = self._offsets(dict(times))
        too_young = [key for key, offset in found.items() if offset < 0]
        if too_young and which == "starting" and not self._options.latest_when_too_young:
            raise OptionError(
                f"partition {too_young[0]} has no record at or after {times[too_young[0]]}: use an earlier time, "
                "or set startingOffsetsByTimestampStrategy to latest"
            )
        return {**found, **self.latest(too_young)}

    def first_since(self, timestamp: Millis, ends: Mapping[TopicPartition, int]) -> Offsets:
        """The first records at or after a time; the end of a partition that has none."""
        found = self._offsets(dict.fromkeys(ends, timestamp))
        return {key: offset if offset >= 0 else ends[key] for key, offset in found.items()}

    # ── The group ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _committed(self, keys: list[TopicPartition]) -> Offsets:
        """The committed offsets of the group; the first record where there are none."""
        group_id = self._options.group_id or ""
        found = self._admin.list_group_offsets(group_id, keys)
        committed = {key: one.offset for key, one in found.items() if one.offset >= 0}
        return {**self.earliest([key for key in keys if key not in committed]), **committed}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit finished offsets to the group; returns whether it succeeded. Failures are only logged."""
        try:
            outcome = self._admin.alter_group_offsets(self._options.group_id or "", offsets, raise_errors=False)
        except KafkaError as error:
            log.warning("could not commit offsets to group %s: %s", self._options.group_id, error)
            return False
        for key, problem in outcome.errors.items():
            if not isinstance(problem, UnknownTopicOrPartition):
                log.warning("could not commit the offset of %s to group %s: %s", key, self._options.group_id, problem)
                return False
        return True
