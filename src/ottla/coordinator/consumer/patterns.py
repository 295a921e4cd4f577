"""Subscriptions by regular expression: when they are resolved, and to which topics.

An expression is matched against the names of all topics. That happens right after the heartbeat that brings it, by a
timer that is due at once; the member gets its partitions at its next heartbeat. All expressions of a group are resolved
together: when one is new, when topics were created, and from time to time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum

from ottla import errors
from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.consumer.logged import LoggedGroup
from ottla.coordinator.consumer.member import Change
from ottla.coordinator.consumer.records import RecordWriter
from ottla.coordinator.consumer.regex import InvalidPattern, Pattern
from ottla.coordinator.effects import Effects
from ottla.types import Millis

REGEX = "consumer-regex"
#: At most this often, however many expressions and topics are new.
MIN_REFRESH_INTERVAL: Millis = 10_000
_NEVER: Millis = -(2**63)
_NOBODY = (history.TOPIC_METADATA_CHANGED, None)


class RegexChange(Enum):
    NONE = "the member has the same expression"
    UNRESOLVED = "it has another one, and its topics are not known yet"
    RESOLVED = "it has another one or none, and its topics are known"


class Patterns:
    """Resolves the regular expressions of a group. When it last did so is logged; what it is asked to do is soft."""

    def __init__(self, logged: LoggedGroup, writer: RecordWriter, refresh_interval: Millis) -> None:
        self._subscriptions = logged.subscriptions
        self._members = logged.members
        self._writer = writer
        self._refresh_interval = refresh_interval
        self._topics_created_at: Millis = 0
        self._refresh_asked_at = _NEVER
        self.asked_by: tuple[str, r.Who | None] = _NOBODY
        """The kind of trigger that the next resolution is, and the member that asked for it."""
        self.sees: Callable[[str], bool] | None = None
        """Which topics the member of the last heartbeat may know; None for all. It asked for the next resolution."""

    def topics_created(self, *, now: Millis) -> None:
        """New topics may match the expressions."""
        self._topics_created_at = now

    def append_failed(self) -> None:
        """The timer that resolves the expressions may be lost with records that were not written: ask again."""
        self._refresh_asked_at = _NEVER

    # ── heartbeats ────────────────────────────────────────────────────────────────────────────────────────────────

    def changed_by(self, change: Change, fx: Effects) -> RegexChange:
        """Return how a member's expression changes; raise InvalidRegularExpression."""
        old, new = change.before.subscribed_topic_regex, change.after.subscribed_topic_regex
        if old == new:
            return RegexChange.NONE
        regexes = self._subscriptions.regexes
        if old and regexes[old] == 1:
            self._writer.regex(old, None, fx)
        if not new:
            return RegexChange.RESOLVED
        if not regexes[new]:
            check_regex(new)
        elif new in self._subscriptions.resolved:
            return RegexChange.RESOLVED
        return RegexChange.UNRESOLVED

    def refresh_after(self, change: Change, kind: RegexChange, fx: Effects) -> None:
        """Ask for the resolution of all expressions if it is time to."""
        old, new = change.before.subscribed_topic_regex, change.after.subscribed_topic_regex
        regexes = self._subscriptions.regexes
        if not (old or new or regexes):
            return
        counts = Counter(regexes)
        counts[old] -= 1
        counts[new] += 1
        subscribed = {regex for regex, count in counts.items() if regex and count > 0}
        is_new = old != new and bool(new) and not regexes[new]
        is_open = is_new or len(subscribed) != len(self._subscriptions.resolved) or self._is_stale(now=fx.now)
        if subscribed and is_open and self._may_refresh(now=fx.now):
            self._refresh_asked_at = fx.now
            fx.set_timer((REGEX, self._writer.group_id), fx.now)
        if kind is RegexChange.UNRESOLVED:
            member = change.after
            is_known = member.member_id in self._members
            self.asked_by = (history.SUBSCRIPTION_CHANGED if is_known else history.MEMBER_JOINED, member.who)

    def _last_refresh(self) -> Millis:
        return min((value.timestamp for value in self._subscriptions.resolved.values()), default=_NEVER)

    def _may_refresh(self, *, now: Millis) -> bool:
        last = self._last_refresh()
        is_asked = last < self._refresh_asked_at and now <= self._refresh_asked_at + MIN_REFRESH_INTERVAL
        return not is_asked and now > last + MIN_REFRESH_INTERVAL

    def _is_stale(self, *, now: Millis) -> bool:
        last = self._last_refresh()
        return last <= self._topics_created_at or now > last + self._refresh_interval

    def drop_unused(self, leaving: Iterable[str], fx: Effects) -> None:
        """Remove the expressions that only leaving members subscribe to."""
        left = self._subscriptions.regexes.copy()
        left.subtract(regex for regex in leaving if regex)
        for regex, count in left.items():
            if count == 0:
                self._writer.regex(regex, None, fx)

    # ── resolution ────────────────────────────────────────────────────────────────────────────────────────────────

    def resolve(self, topics: Iterable[str], fx: Effects) -> tuple[set[str], bool]:
        """Match all expressions; return all names that the group subscribes to, and whether an expression changed."""
        sorted_topics = sorted(topics if self.sees is None else filter(self.sees, topics))
        names = set(self._subscriptions.names)
        resolved, changed = self._subscriptions.resolved, False
        for regex in self._subscriptions.regexes:
            matched = self._matched(regex, sorted_topics)
            # Also if a new expression matches nothing: its members may have had partitions by another subscription,
            # which nobody would get otherwise. (Kafka does not raise the epoch then.)
            changed |= regex not in resolved or matched != resolved[regex].topics
            names.update(matched)
            value = r.ConsumerGroupRegularExpressionValue(matched, self._topics_created_at, fx.now)
            self._writer.regex(regex, value, fx)
        return names, changed

    def resolved(self) -> None:
        """The log has a resolution: the next one has another reason, and may be asked for."""
        self.asked_by = _NOBODY
        self._refresh_asked_at = _NEVER

    def _matched(self, regex: str, names: Iterable[str]) -> tuple[str, ...]:
        try:
            return Pattern(regex).matching(names)
        except InvalidPattern:
            # Another broker accepted it: it keeps the topics that it has in the log.
            resolved = self._subscriptions.resolved
            return resolved[regex].topics if regex in resolved else ()


def check_regex(regex: str) -> None:
    """Raise InvalidRegularExpression if an expression is not valid in RE2, or too large."""
    try:
        Pattern(regex)
    except InvalidPattern as error:
        raise errors.InvalidRegularExpression(
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        ) from None
