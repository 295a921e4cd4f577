"""Errors that only consumers raise. Their messages name the setting to change."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import InvalidSessionTimeout, KafkaError, OffsetOutOfRange, OttlaError
from ottla.types import Millis, TopicPartition


class CommitFailed(KafkaError):
    """The offsets were not committed, and a retry cannot help: the partitions belong to other members now."""


class RetriableCommitFailed(KafkaError):
    """An asynchronous commit failed with a retriable error. It is not retried, as a later one may have succeeded."""

    retriable = True


class RebalanceUnderWay(RetriableCommitFailed):
    """Nothing can be committed while the group rebalances. Poll until the rebalance is over, then commit."""


class NoOffsetForPartition(OffsetOutOfRange):
    """There is no committed offset, and auto.offset.reset=none does not say where to start."""


class LogTruncation(OffsetOutOfRange):
    """The last record that was read is no longer in the log: it was truncated, and other records took its place."""


class Wakeup(OttlaError):
    """`wakeup` interrupted the call. The consumer can still be used."""


class GroupRequired(OttlaError):
    """The call needs a group."""


def no_offset(partitions: Iterable[TopicPartition]) -> NoOffsetForPartition:
    names = ", ".join(sorted(map(str, partitions)))
    return NoOffsetForPartition(
        f"nothing was committed for {names}, and auto.offset.reset=none gives no default: seek to an offset, or set "
        "auto.offset.reset to earliest or latest"
    )


def out_of_range(partition: TopicPartition, offset: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"partition {partition} has no offset {offset}: it was deleted already, or is not written yet. Seek to another "
        "one, or set auto.offset.reset to earliest or latest"
    )


def truncated(partition: TopicPartition, offset: int, end: int) -> LogTruncation:
    to, after = (f"to offset {end}", "after it") if end >= 0 else ("(its leader does not know the last epoch)", "in it")
    return LogTruncation(
        f"the log of partition {partition} was truncated {to}, and offset {offset} was next: what was read {after} "
        "was lost. Seek to where to continue, or set auto.offset.reset"
    )


def session_timeout_rejected(session_timeout_ms: Millis) -> InvalidSessionTimeout:
    return InvalidSessionTimeout(
        f"the broker does not allow session.timeout.ms={session_timeout_ms}: choose one between its "
        "group.min.session.timeout.ms and group.max.session.timeout.ms (6000 and 1800000 unless they were changed)"
    )


def commit_failed(reason: str, *, gap: Millis, max_poll_interval_ms: Millis, max_poll_records: int) -> CommitFailed:
    """The error of a commit that came too late; `gap` is the time between the last two polls."""
    if gap > max_poll_interval_ms:
        why = (
            f"{gap / 1000:g} s passed since the last poll, more than max.poll.interval.ms ({max_poll_interval_ms}) "
            "allows, so this member left the group and its partitions went to others. Raise max.poll.interval.ms, or "
            f"lower max.poll.records ({max_poll_records}) so that a poll's records are processed in time"
        )
    else:
        why = (
            f"the group has rebalanced and the partitions may belong to other members now ({gap / 1000:g} s passed "
            "since the last poll). Poll to join again; if this happens often, commit in "
            f"on_partitions_revoked, raise max.poll.interval.ms ({max_poll_interval_ms}) or lower max.poll.records "
            f"({max_poll_records})"
        )
    return CommitFailed(f"the commit was rejected ({reason}): {why}")
