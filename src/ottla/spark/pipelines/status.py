"""The status of a pipeline without Spark, from its checkpoints, its groups and the ends of its topics.

status = status_of(load("orders.toml"))
for flow in status.flows:
    print(flow.name, flow.checkpoint.finished, flow.lag)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ottla.clients.admin.blocking import Admin
from ottla.errors import OttlaError, UnknownTopicOrPartition
from ottla.spark.options import Offsets
from ottla.spark.pipelines.checkpoints import Checkpoint, CheckpointError, as_of, read_checkpoint
from ottla.spark.pipelines.compile import groups_of
from ottla.spark.pipelines.declaration import Pipeline, Source
from ottla.spark.pipelines.places import Local, PlaceError
from ottla.spark.pipelines.progress import RuleProgress
from ottla.spark.pipelines.replay import Replay
from ottla.spark.pipelines.rule_counts import CountsError, exceeded, stored_rules
from ottla.spark.pipelines.rules import limits_of
from ottla.spark.pipelines.run_lock import Holder, holder, local_path
from ottla.spark.pipelines.runner import admin_config, client_config, reads
from ottla.spark.pipelines.shared.backlog import stored
from ottla.spark.pipelines.shared.layout import (
    LATE,
    State,
    chosen,
    expected,
    letters_name,
    own_directory,
    shared_directory,
)
from ottla.types import TopicPartition

#: Up to this many dead letters are counted exactly; beyond that, the count comes from offsets.
COUNTED = 20_000
ASK_MS = 10_000


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One topic of a flow."""

    topic: str
    lag: int | None
    """Records after the finished offsets of the checkpoint; None if the topic was deleted."""
    group: str | None = None
    committed_lag: int | None = None
    """Records after the offsets committed to the group, as lag monitors show it."""


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """One query of the pipeline."""

    name: str
    directory: str
    checkpoint: Checkpoint | None
    """None if it never ran, or if the checkpoint is on another file system."""
    topics: tuple[TopicStatus, ...] = ()
    shares: str | None = None
    """The source whose shared read it uses."""
    waiting: int = 0
    """Batches of a late sink that are stored and not written yet. The checkpoint is the one before them."""

    @property
    def lag(self) -> int | None:
        known = [one.lag for one in self.topics if one.lag is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class DeadLetterStatus:
    """Dead letters that were not replayed."""

    topic: str
    waiting: int | None
    """None if the topic does not exist yet."""
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Status:
    """The current status of a pipeline."""

    pipeline: str
    running: Holder | None
    flows: tuple[FlowStatus, ...]
    dead_letters: tuple[DeadLetterStatus, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """Information that could not be read."""
    rules: tuple[RuleProgress, ...] = ()
    """The rules of the last run, or of the current one."""
    exceeded: tuple[RuleProgress, ...] = ()
    """Exceeded limits, because of which the next run will refuse to start."""


@dataclass(frozen=True, slots=True)
class FlowPlace:
    """A sink, or the dead letters of a source, and the checkpoint of its query."""

    name: str
    directory: str
    sources: tuple[Source, ...]
    """The sources that it may read."""
    shares: str | None = None
    """The source whose shared read it uses."""


def flows_of(pipeline: Pipeline) -> list[FlowPlace]:
    """All sinks and dead letters. Before the first run, who shares a read is what the declaration lets expect."""
    state = State.of(pipeline)
    sharing = {
        name: source
        for source, able in expected(pipeline).items()
        for name in chosen(able, state.apart, state.readers.get(source))
    }
    own = [FlowPlace(sink.name, pipeline.checkpoint_of(sink.name), tuple(pipeline.sources)) for sink in pipeline.sinks]
    for source in pipeline.sources:
        name = letters_name(source.name)
        if pipeline.sends_dead_letters(source):
            own.append(FlowPlace(name, own_directory(pipeline, name), (source,)))
    sources = {source.name: source for source in pipeline.sources}
    found = []
    for one in own:
        shares = state.source_of(one.name) or sharing.get(one.name)
        if shares in sources:
            one = FlowPlace(one.name, shared_directory(pipeline, shares), (sources[shares],), shares)
        found.append(one)
    return found


def replay_group(topic: str) -> str:
    """The group that stores the progress of replays."""
    return f"{topic}.replay"


def dead_letter_topics(pipeline: Pipeline) -> list[str]:
    """The dead letter topics; `{topic}` is replaced by every topic that the sources read now."""
    letters = pipeline.dead_letters
    if letters is None:
        return []
    if "{topic}" not in letters.topic:
        return [letters.topic]
    found: set[str] = set()
    for source in pipeline.sources:
        if not pipeline.sends_dead_letters(source):
            continue
        names = {*source.topics, *(source.assign or {})}
        if source.pattern is not None:
            with Admin({**admin_config(pipeline, source), "default.api.timeout.ms": ASK_MS}) as admin:
                names |= {name for name in admin.list_topics() if reads(source, name)}
        found |= {letters.topic.replace("{topic}", name) for name in names}
    return sorted(found)


def status_of(pipeline: Pipeline, *, ask: bool = True, counted: int = COUNTED) -> Status:
    """Read the status; `ask=False` does not contact the broker. Up to `counted` dead letters are read to count them."""
    problems: list[str] = []
    flows = []
    places = flows_of(pipeline)
    shared = [one.shares for one in places if one.shares is not None]
    for place in places:
        checkpoint, waiting = _checkpoint(place, problems)
        flow = FlowStatus(place.name, place.directory, checkpoint, shares=place.shares, waiting=waiting)
        if ask and checkpoint is not None and checkpoint.offsets:
            groups = groups_for(pipeline, place, shared)
            try:
                flow = replace(flow, topics=tuple(_topics(pipeline, groups, checkpoint, place.sources)))
            except OttlaError as error:
                problems.append(f"could not read the lag of {place.name}: {error}")
        flows.append(flow)
    letters: tuple[DeadLetterStatus, ...] = ()
    if ask and pipeline.dead_letters is not None:
        try:
            letters = tuple(_waiting(pipeline, topic, counted) for topic in dead_letter_topics(pipeline))
        except OttlaError as error:
            problems.append(f"could not count the dead letters: {error}")
    rules, over = _rules(pipeline, problems)
    running = holder(pipeline.path(pipeline.checkpoint))
    return Status(pipeline.name, running, tuple(flows), letters, tuple(dict.fromkeys(problems)), rules, over)


def _rules(pipeline: Pipeline, problems: list[str]) -> tuple[tuple[RuleProgress, ...], tuple[RuleProgress, ...]]:
    limits = limits_of(pipeline)
    try:
        stored = [one.progress for one in stored_rules(pipeline)]
        return tuple(replace(one, limit=limits.get(one.rule)) for one in stored), tuple(exceeded(pipeline))
    except (CountsError, PlaceError) as error:
        problems.append(str(error))
        return (), ()


def _checkpoint(flow: FlowPlace, problems: list[str]) -> tuple[Checkpoint | None, int]:
    """The progress of a flow, and the number of stored batches of a late sink."""
    path = local_path(flow.directory)
    if path is None:
        problems.append(f"{flow.directory} is not a local directory, so its checkpoint cannot be read")
        return None, 0
    try:
        checkpoint = read_checkpoint(path)
        late = stored(Local(path / LATE / flow.name)) if flow.shares is not None else []
        if checkpoint is not None and late:
            checkpoint = as_of(checkpoint, path, late[0] - 1)
    except (CheckpointError, PlaceError) as error:
        problems.append(str(error))
        return None, 0
    return checkpoint, len(late)


def groups_for(pipeline: Pipeline, flow: FlowPlace, shared: Sequence[str]) -> dict[str, str]:
    """The group of each source. A sink with max_delay has its own, because it may be behind."""
    if flow.shares is None:
        return groups_of(pipeline, flow.name, shared=shared)
    is_late = any(sink.name == flow.name and sink.max_delay is not None for sink in pipeline.sinks)
    own = f".{flow.name}" if is_late else ""
    return {source.name: f"{source.group_id}{own}" for source in flow.sources if source.group_id}


def _topics(
    pipeline: Pipeline, groups: Mapping[str, str], checkpoint: Checkpoint, sources: tuple[Source, ...]
) -> Iterator[TopicStatus]:
    for source in sources:
        finished = {key: one for key, one in checkpoint.offsets.items() if reads(source, key.topic)}
        if not finished:
            continue
        group = groups.get(source.name)
        with Admin({**admin_config(pipeline, source), "default.api.timeout.ms": ASK_MS}) as admin:
            ends = _ends(admin, finished, source.isolation)
            committed = {} if group is None else admin.list_group_offsets(group)
        known = {key: one.offset for key, one in committed.items() if one.offset >= 0}
        for topic in sorted({key.topic for key in finished}):
            yield TopicStatus(
                topic, _lag(topic, finished, ends), group, _lag(topic, known, ends) if group is not None else None
            )


def _ends(admin: Admin, keys: Offsets, isolation: str) -> Offsets:
    """The ends of all partitions of these topics, including new ones."""
    described = admin.describe_topics(sorted({key.topic for key in keys}), raise_errors=False)
    there = [TopicPartition(one.name, part.partition) for one in described.values() for part in one.partitions]
    found = admin.list_offsets(dict.fromkeys(there, "latest"), isolation_level=isolation)
    return {key: one.offset for key, one in found.items()}


def _lag(topic: str, done: Offsets, ends: Offsets) -> int | None:
    """
    >>> key = TopicPartition("orders", 0)
    >>> _lag("orders", {key: 40}, {key: 42, TopicPartition("orders", 1): 3}), _lag("gone", {}, {})
    (5, None)
    """
    if not any(key.topic == topic for key in done):
        return None
    found = [max(end - done.get(key, 0), 0) for key, end in ends.items() if key.topic == topic]
    return sum(found) if found else None


def _waiting(pipeline: Pipeline, topic: str, counted: int) -> DeadLetterStatus:
    config = client_config(pipeline, pipeline.dead_letters)
    with Replay([topic], group=replay_group(topic), config=config) as replay:
        try:
            return DeadLetterStatus(topic, *replay.waiting(at_most=counted))
        except UnknownTopicOrPartition:
            return DeadLetterStatus(topic, None)
