"""Subscriptions by regular expression: when they are resolved, and what follows from it.

An expression is resolved against the names of all topics, not in the heartbeat that brings it but right after, by a
timer that is due at once; the member gets its partitions at its next heartbeat. All expressions of a group are resolved
together: when one is new, when topics were created, and after a while in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum

from ottla import errors
from ottla.assignors import Assignor
from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.consumer_member import Member
from ottla.coordinator.consumer_rebalance import ConsumerRebalance
from ottla.coordinator.consumer_regex import compiled
from ottla.coordinator.consumer_regex_syntax import InvalidPattern
from ottla.coordinator.consumer_target import metadata_hash
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Shard
from ottla.types import Millis

REGEX = "consumer-regex"
#: Not more often than this, however many expressions and topics come.
MIN_REFRESH_INTERVAL: Millis = 10_000
_NEVER: Millis = -(2**63)


class RegexChange(Enum):
    NONE = "the member has the same expression"
    UNRESOLVED = "it has another one, and its topics are not known yet"
    RESOLVED = "it has another one or none, and its topics are known"


class SubscribedConsumerGroup(ConsumerRebalance):
    """A consumer group that resolves regular expressions."""

    def __init__(self, shard: Shard, group_id: str, assignors: Mapping[str, Assignor]) -> None:
        super().__init__(shard, group_id, assignors)
        self._topics_created_at: Millis = 0
        self._refresh_asked_at = _NEVER
        self._asked_by: tuple[str, r.Who | None] = (history.TOPIC_METADATA_CHANGED, None)

    def topics_created(self, fx: Effects) -> None:
        """There are topics that the expressions have not been matched against."""
        self._topics_created_at = fx.now

    def update_regex(self, before: Member, after: Member, fx: Effects) -> RegexChange:
        """Take note of a member's expression, and ask for the resolution of all if it is time to."""
        old, new = before.subscribed_topic_regex, after.subscribed_topic_regex
        if not (old or new or self.regexes):
            return RegexChange.NONE
        change = RegexChange.NONE if old == new else self._replace_regex(old, new, fx)
        is_new = old != new and bool(new) and not self.regexes[new]
        counts = Counter(self.regexes)
        counts[old] -= 1
        counts[new] += 1
        subscribed = {regex for regex, count in counts.items() if regex and count > 0}
        is_open = is_new or len(subscribed) != len(self.resolved) or self._is_stale(now=fx.now)
        if subscribed and is_open and self._may_refresh(now=fx.now):
            self._refresh_asked_at = fx.now
            fx.set_timer((REGEX, self.group_id), fx.now)
        if change is RegexChange.UNRESOLVED:
            kind = history.SUBSCRIPTION_CHANGED if after.member_id in self.members else history.MEMBER_JOINED
            self._asked_by = (kind, after.who)
        return change

    def _replace_regex(self, old: str, new: str, fx: Effects) -> RegexChange:
        if old and self.regexes[old] == 1:
            fx.write(r.ConsumerGroupRegularExpressionKey(self.group_id, old), None)
        if not new:
            return RegexChange.RESOLVED if old else RegexChange.UNRESOLVED
        if not self.regexes[new]:
            check_regex(new)
        elif new in self.resolved:
            return RegexChange.RESOLVED
        return RegexChange.UNRESOLVED

    def _last_refresh(self) -> Millis:
        return min((value.timestamp for value in self.resolved.values()), default=_NEVER)

    def _may_refresh(self, *, now: Millis) -> bool:
        last = self._last_refresh()
        is_asked = last < self._refresh_asked_at and now <= self._refresh_asked_at + MIN_REFRESH_INTERVAL
        return not is_asked and now > last + MIN_REFRESH_INTERVAL

    def _is_stale(self, *, now: Millis) -> bool:
        last = self._last_refresh()
        return (
            last <= self._topics_created_at or now > last + self.shard.config.group_consumer_regex_refresh_interval_ms
        )

    def resolve_regexes(self, fx: Effects) -> None:
        """Match all expressions against all topics, and raise the epoch if the group subscribes to others now."""
        topics = self.shard.topics()
        names = set(self.names)
        changed = False
        for regex in self.regexes:
            matched = self._matched(regex, topics)
            # Also if a new one matches nothing: its members may have had partitions by another subscription, which
            # nobody would get otherwise. (Kafka does not raise the epoch then.)
            changed |= regex not in self.resolved or matched != self.resolved[regex].topics
            names.update(matched)
            value = r.ConsumerGroupRegularExpressionValue(matched, self._topics_created_at, fx.now)
            fx.write(r.ConsumerGroupRegularExpressionKey(self.group_id, regex), value)
        hash_now = metadata_hash(names, topics)
        if self.regexes and (changed or hash_now != self.metadata_hash):
            self.raise_epoch(self.group_epoch + 1, hash_now, fx)
            _, what = self.remember_topics(names)
            kind, who = self._asked_by
            self.trigger(kind, fx, who, "" if who else what)
            self.tell(self.group_epoch + 1, self.target, fx)
        self._asked_by = (history.TOPIC_METADATA_CHANGED, None)

    def _matched(self, regex: str, names: Iterable[str]) -> tuple[str, ...]:
        try:
            return compiled(regex).matching(sorted(names))
        except InvalidPattern:
            # From the log of a broker that took it: it stays what that one made of it.
            return self.resolved[regex].topics if regex in self.resolved else ()


def check_regex(regex: str) -> None:
    """Raise InvalidRegularExpression for what is not RE2, or too large."""
    try:
        compiled(regex)
    except InvalidPattern as error:
        raise errors.InvalidRegularExpression(
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        ) from None
