"""The status of a pipeline without Spark, from its checkpoints, its groups and the ends of its topics.

status = status_of(load("orders.toml"))
for flow in status.flows:
    print(flow.name, flow.checkpoint.finished, flow.lag)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ottla.clients.admin.blocking import Admin
from ottla.errors import OttlaError, UnknownTopicOrPartition
from ottla.spark.options import Offsets
from ottla.spark.pipelines.checkpoints import Checkpoint, CheckpointError, read_checkpoint
from ottla.spark.pipelines.compile import groups_of
from ottla.spark.pipelines.declaration import DEAD_LETTERS, Pipeline, Source
from ottla.spark.pipelines.progress import RuleProgress
from ottla.spark.pipelines.replay import Replay
from ottla.spark.pipelines.rule_counts import CountsError, exceeded, stored_rules
from ottla.spark.pipelines.rules import limits_of
from ottla.spark.pipelines.run_lock import Holder, holder, local_path
from ottla.spark.pipelines.runner import admin_config, client_config, reads
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


def flows_of(pipeline: Pipeline) -> Iterator[tuple[str, str, tuple[Source, ...]]]:
    """The name, checkpoint directory and possible sources of each flow."""
    for sink in pipeline.sinks:
        yield sink.name, pipeline.checkpoint_of(sink.name), tuple(pipeline.sources)
    for source in pipeline.sources:
        if pipeline.sends_dead_letters(source):
            yield f"{DEAD_LETTERS}.{source.name}", pipeline.checkpoint_of(DEAD_LETTERS, source.name), (source,)


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


def status_of(pipeline: Pipeline, *, ask: bool = True) -> Status:
    """Read the status; `ask=False` does not contact the broker."""
    problems: list[str] = []
    flows = []
    for name, directory, sources in flows_of(pipeline):
        checkpoint = _checkpoint(directory, problems)
        flow = FlowStatus(name, directory, checkpoint)
        if ask and checkpoint is not None and checkpoint.offsets:
            try:
                flow = FlowStatus(name, directory, checkpoint, tuple(_topics(pipeline, name, checkpoint, sources)))
            except OttlaError as error:
                problems.append(f"could not read the lag of {name}: {error}")
        flows.append(flow)
    letters: tuple[DeadLetterStatus, ...] = ()
    if ask and pipeline.dead_letters is not None:
        try:
            letters = tuple(_waiting(pipeline, topic) for topic in dead_letter_topics(pipeline))
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
    except CountsError as error:
        problems.append(str(error))
        return (), ()


def _checkpoint(directory: str, problems: list[str]) -> Checkpoint | None:
    path = local_path(directory)
    if path is None:
        problems.append(f"{directory} is not a local directory, so its checkpoint cannot be read")
        return None
    try:
        return read_checkpoint(path)
    except CheckpointError as error:
        problems.append(str(error))
        return None


def _topics(
    pipeline: Pipeline, flow: str, checkpoint: Checkpoint, sources: tuple[Source, ...]
) -> Iterator[TopicStatus]:
    for source in sources:
        finished = {key: one for key, one in checkpoint.offsets.items() if reads(source, key.topic)}
        if not finished:
            continue
        group = groups_of(pipeline, flow).get(source.name)
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


def _waiting(pipeline: Pipeline, topic: str) -> DeadLetterStatus:
    config = client_config(pipeline, pipeline.dead_letters)
    with Replay([topic], group=replay_group(topic), config=config) as replay:
        try:
            return DeadLetterStatus(topic, *replay.waiting(at_most=COUNTED))
        except UnknownTopicOrPartition:
            return DeadLetterStatus(topic, None)
