"""The rebalances of a group: what happened in each, and which member had which partition when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.band_charts import Band, Mark, Span, band_chart
from ottla.clients.admin.groups import CONSUMER, GroupDescription, GroupMember
from ottla.clients.admin.offsets_topic import GroupHistory
from ottla.coordinator.records import HistoryValue, Latecomer, PartitionMove, Trigger
from ottla.groups.diagnosis import Diagnosis, Happening, derived_happenings, diagnose, happenings
from ottla.groups.timeline import Names
from ottla.monitoring.derived import UNKNOWN_CAUSE, Derived
from ottla.types import Millis, TopicPartition
from ottla.wording import plural

MOST_ROWS = 40
"""How many partitions a chart shows."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a rebalance."""

    name: str
    length: Millis


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance, from ottla's own history or as far as Kafka's records show it."""

    number: int
    generation: int
    started_at: Millis
    ended_at: Millis
    outcome: str
    triggers: tuple[Trigger, ...]
    members: int
    assignor: str
    moves: tuple[PartitionMove, ...]
    moved: int | None
    kept: int | None
    phases: tuple[Phase, ...] = ()
    late: tuple[Latecomer, ...] = ()
    is_derived: bool = False
    """Whether the broker keeps no history, so that causes, phases and late members are unknown."""

    @property
    def length(self) -> Millis:
        return self.ended_at - self.started_at

    @property
    def moves_left_out(self) -> int:
        return (self.moved or 0) - len(self.moves)


def rebalances_of(history: GroupHistory) -> list[Rebalance]:
    """The rebalances of a group, the oldest first; the one under way is the last."""
    if not history.rebalances and history.under_way is None:
        return [_derived(one) for one in history.derived]
    under_way = [history.under_way] if history.under_way is not None else []
    return [_recorded(one) for one in [*history.rebalances, *under_way]]


def diagnosis_of(history: GroupHistory, *, now: Millis, period: Millis) -> Diagnosis:
    """Why the group rebalanced, as `ottla groups explain` says it."""
    found: list[Happening] = happenings(history.rebalances) or derived_happenings(history.derived)
    return diagnose(found, now=now, period=period)


def _recorded(value: HistoryValue) -> Rebalance:
    return Rebalance(
        number=value.number,
        generation=value.generation,
        started_at=value.started_at,
        ended_at=value.ended_at,
        outcome=value.outcome,
        triggers=value.triggers,
        members=value.members,
        assignor=value.protocol,
        moves=value.moves,
        moved=value.partitions_moved,
        kept=value.partitions_kept,
        phases=tuple(_phases(value)),
        late=value.late,
    )


def _phases(value: HistoryValue) -> Iterable[Phase]:
    if value.joined_at >= 0:
        yield Phase("waited for members to join", value.joined_at - value.started_at)
        yield Phase("waited for the leader's assignment", value.ended_at - value.joined_at)
    elif value.revoked_at >= 0:
        yield Phase("waited for members to give up partitions", value.revoked_at - value.started_at)
        yield Phase("waited for new owners to take them", value.ended_at - value.revoked_at)


def _derived(value: Derived) -> Rebalance:
    (happening,) = derived_happenings([value])
    return Rebalance(
        number=value.generation,
        generation=value.generation,
        started_at=value.at,
        ended_at=value.at,
        outcome="stable" if value.members else "empty",
        triggers=() if value.causes == (UNKNOWN_CAUSE,) else happening.triggers,
        members=value.members,
        assignor=value.assignor or "",
        moves=value.moves,
        moved=value.partitions_moved,
        kept=value.partitions_kept,
        is_derived=True,
    )


def names_of(group: GroupDescription | None, history: GroupHistory) -> Names:
    """Short names of all members that are known."""
    under_way = [history.under_way] if history.under_way is not None else []
    names = Names(group.members if group is not None else (), [*history.rebalances, *under_way])
    for one in history.derived:
        names.add(one.joined + one.gone + one.replaced)
    return names


def cause_of(rebalance: Rebalance, names: Names) -> str:
    """The first cause, in a few words.

    >>> cause_of(_derived(Derived(0, 1, 0, 1)), Names((), ()))
    'unknown'
    """
    if not rebalance.triggers:
        return "unknown"
    first, more = rebalance.triggers[0], len(rebalance.triggers) - 1
    who = f": {names.of(first.who.member_id)}" if first.who is not None else ""
    return f"{first.kind}{who}{f' and {more} more' if more else ''}"


# ── which member had which partition when ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owners of the partitions of a group over time."""

    first: Millis
    last: Millis
    rows: Mapping[TopicPartition, Sequence[tuple[Millis, Millis, str | None]]]
    """For each partition: from, to, and the member id; None if nobody had it."""
    doubtful_before: Millis | None = None
    """Before this time some owners may be wrong, because a rebalance moved more partitions than are recorded."""
    unknown_before: Millis | None = None
    """Before this time no owners are known, because nothing shows what a rebalance moved. Rows begin here."""


def chart_start(rebalances: Sequence[Rebalance], *, first: Millis, last: Millis) -> Millis:
    """Where the chart begins: shortly before the first rebalance if nobody owned a partition before it."""
    if not rebalances or any(move.source is not None for move in rebalances[0].moves):
        return first
    born = rebalances[0].started_at
    return max(first, born - (last - born) // 20)


def ownership(
    rebalances: Sequence[Rebalance], members: Iterable[GroupMember], *, first: Millis, last: Millis
) -> Ownership:
    """Go back from the owners of today, from one rebalance to the one before."""
    owners: dict[TopicPartition, str | None] = {key: one.member_id for one in members for key in one.assignment}
    for rebalance in reversed(rebalances):
        # A group that is rebalancing right now has no assignments.
        owners.update({_place(move): move.target for move in rebalance.moves if _place(move) not in owners})
    spans: dict[TopicPartition, list[tuple[Millis, Millis, str | None]]] = {key: [] for key in owners}
    ends = dict.fromkeys(owners, last)
    doubtful_before = unknown_before = None
    for rebalance in sorted(rebalances, key=lambda one: one.number, reverse=True):
        at = min(rebalance.ended_at, last)
        if at < first:
            break
        for move in rebalance.moves:
            key = _place(move)
            if at < ends[key]:
                spans[key].append((at, ends[key], move.target))
                ends[key] = at
            owners[key] = move.source
        if rebalance.moved is None:
            unknown_before = at
            break
        if rebalance.moves_left_out > 0 and doubtful_before is None:
            doubtful_before = at
    begin = first if unknown_before is None else unknown_before
    for key, end in ends.items():
        if begin < end:
            spans[key].append((begin, end, owners[key]))
    rows = {key: some[::-1] for key, some in sorted(spans.items())}
    return Ownership(first, last, rows, doubtful_before, unknown_before)


def _place(move: PartitionMove) -> TopicPartition:
    return TopicPartition(move.topic, move.partition)


def ownership_chart(
    found: Ownership, rebalances: Sequence[Rebalance], names: Names, links: Mapping[int, str], *, group: str
) -> str:
    """The chart. A process keeps its color when it joins again with another member id."""
    labels = _labels(found, names)
    colours = {label: number for number, label in enumerate(dict.fromkeys(labels.values()))}
    shown = list(found.rows.items())[:MOST_ROWS]
    topics = {key.topic for key in found.rows}
    bands = [
        Band(str(key.partition) if len(topics) == 1 else str(key), [_span(one, names, labels, colours) for one in some])
        for key, some in shown
    ]
    marks = [
        Mark(
            one.started_at,
            max(one.ended_at, one.started_at),
            f"#{one.number} {cause_of(one, names)}",
            links[one.number],
        )
        for one in rebalances
        if found.first <= one.started_at <= found.last
    ]
    what = f"topic {next(iter(topics))}" if len(topics) == 1 else f"{len(topics)} topics"
    more = f", the first {MOST_ROWS} of {len(found.rows)} partitions" if len(found.rows) > MOST_ROWS else ""
    return band_chart(
        title=f"Who read which partition of {what}",
        subtitle=f"group {group}: {plural(len(marks), 'rebalance')}{more}. A mark opens its rebalance.",
        first=found.first,
        last=found.last,
        bands=bands,
        marks=marks,
        legend=[(colour, name) for name, colour in colours.items()][:24],
    )


def _labels(found: Ownership, names: Names) -> dict[str, str]:
    """A label for each member: its client, or its own name if another member of this client was there with it."""
    spans: dict[str, list[tuple[Millis, Millis, str]]] = {}
    for some in found.rows.values():
        for start, end, owner in some:
            if owner is not None:
                spans.setdefault(names.process(owner), []).append((start, end, owner))
    labels: dict[str, str] = {}
    for client, known in spans.items():
        known.sort()
        until, last = known[0][1], known[0][2]
        is_shared = False
        for start, end, owner in known:
            is_shared |= owner != last and start < until
            until, last = (end, owner) if end >= until else (until, last)
        labels.update({owner: names.of(owner) if is_shared else client for _, _, owner in known})
    return dict(sorted(labels.items(), key=lambda item: item[1]))


def _span(
    one: tuple[Millis, Millis, str | None], names: Names, labels: Mapping[str, str], colours: Mapping[str, int]
) -> Span:
    start, end, owner = one
    return Span(start, end, None) if owner is None else Span(start, end, names.of(owner), colours[labels[owner]])


def word_of(group_type: str) -> str:
    """What a group calls its versions."""
    return "epoch" if group_type == CONSUMER else "generation"
