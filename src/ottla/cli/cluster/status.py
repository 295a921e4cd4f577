"""``ottla cluster status``: brokers, the controller, and partitions with problems. Works with any Kafka."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterator, Sequence

from ottla.cli.cluster.health import (
    OFFLINE,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    Health,
    Problem,
    health_json,
    health_of,
    lacks_replicas,
)
from ottla.cli.options import positive
from ottla.cli.terminal import plural, print_json, table
from ottla.cli.topics.describe import described_topics, ids, listed, partition_json
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.brokers import controller_epoch
from ottla.clients.admin.values import TopicDescription

MIN_ISR = "min.insync.replicas"
_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--limit", type=positive, default=_SHOWN, help=f"the most partitions to list (default: {_SHOWN})"
    )


async def status(admin: AsyncAdmin, args: Namespace) -> int:
    cluster = await admin.describe_cluster(include_fenced_brokers=True)
    topics = await described_topics(admin, ())
    health = health_of(
        cluster, topics, await _min_isr(admin, topics), controller_epoch=await controller_epoch(admin.cluster)
    )
    if args.json:
        problems = [_problem_json(problem) for problem in health.problems]
        print_json(health_json(health) | {"problems": problems})
    else:
        print("\n".join(_lines(health, args.limit)))
    return 0


async def _min_isr(admin: AsyncAdmin, topics: Sequence[TopicDescription]) -> dict[str, int]:
    """The min.insync.replicas of topics that lack replicas: others cannot be below."""
    names = [topic.name for topic in topics if lacks_replicas(topic)]
    described = await admin.describe_configs(names) if names else {}
    values = {resource.name: configs[MIN_ISR].value for resource, configs in described.items() if MIN_ISR in configs}
    return {name: int(value) for name, value in values.items() if value is not None}


def _lines(health: Health, limit: int) -> Iterator[str]:
    yield _headline(health)
    yield ""
    columns = ["BROKER", "ADDRESS", "RACK", "STATE", "LEADS", "REPLICAS", "IN-SYNC"]
    yield table(columns, [_broker_row(health, number) for number in range(len(health.cluster.nodes))])
    yield ""
    yield _summary(health)
    if health.problems:
        columns = ["PARTITION", "PROBLEM", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR", "MIN-ISR"]
        yield table(columns, [_problem_row(problem) for problem in health.problems[:limit]])
    if len(health.problems) > limit:
        yield f"and {plural(len(health.problems) - limit, 'other partition')}; show more with --limit"


def _headline(health: Health) -> str:
    controller = health.cluster.controller
    epoch = "" if health.controller_epoch is None else f" (epoch {health.controller_epoch})"
    who = "no controller" if controller is None else f"controller {controller.id}{epoch}"
    fenced = sum(node.is_fenced for node in health.cluster.nodes)
    away = f", {fenced} of them away" if fenced else ""
    return f"cluster {health.cluster.cluster_id}: {plural(len(health.cluster.nodes), 'broker')}{away}, {who}"


def _broker_row(health: Health, number: int) -> list[object]:
    node = health.cluster.nodes[number]
    counts = [counted.get(node.id, 0) for counted in (health.leads, health.replicas, health.in_sync)]
    return [node.id, str(node), node.rack, "fenced" if node.is_fenced else "running", *counts]


def _summary(health: Health) -> str:
    total = f"{plural(health.topics, 'topic')}, {plural(health.partitions, 'partition')}"
    kinds = (OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED)
    found = [f"{health.count(kind):,} {kind}" for kind in kinds if health.count(kind)]
    if health.not_preferred:
        found.append(f"{health.not_preferred:,} not led by the first replica")
    return f"{total}: {', '.join(found) or 'all replicas in sync'}"


def _problem_row(problem: Problem) -> list[object]:
    one = problem.partition
    return [
        str(problem.key),
        problem.what,
        None if one.leader is None else one.leader.id,
        one.leader_epoch,
        listed(ids(one.replicas)),
        listed(ids(one.isr)),
        listed(ids(one.eligible_leader_replicas or ())),
        problem.min_isr,
    ]


def _problem_json(problem: Problem) -> dict[str, object]:
    facts = {"topic": problem.key.topic, **partition_json(problem.partition)}
    return facts | {"problem": problem.what, "min_isr": problem.min_isr}
