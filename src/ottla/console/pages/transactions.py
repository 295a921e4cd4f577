"""Transactions: which are open, which partitions they block, and aborting one that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.transactions import (
    LONGEST_MS,
    ListedTransaction,
    OpenTransaction,
    TransactionDescription,
    abort_transaction,
    describe_transactions,
    list_transactions,
    open_transactions,
    without_coordinator,
)
from ottla.clients.cluster.leaders import LATEST_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from ottla.clients.cluster.metadata import NO_LEADER
from ottla.console.actions import Field, Form, Plan, Values, action
from ottla.console.render import render
from ottla.console.state import access_of
from ottla.console.views.commands import option
from ottla.console.views.paging import whole
from ottla.console.views.transactions import OPEN_STATES, Blocked, blocked_partitions, chosen
from ottla.errors import KafkaError, OttlaError, UnsupportedVersion
from ottla.types import TopicPartition

SHARED, SECONDS = "transactions", 3.0
MOST_IDS = 200
MOST_DESCRIBED = 100
MOST_BLOCKED = 200


@dataclass(frozen=True, slots=True)
class Found:
    """What the brokers told about transactions."""

    listed: Sequence[ListedTransaction] | None
    """None if the brokers are too old to tell."""
    unfinished: Mapping[str, TransactionDescription]
    blocked: Sequence[Blocked]
    unlooked: int
    """Blocked partitions whose transactions were not asked for."""


async def show(request: Request) -> Response:
    access = access_of(request)
    given = request.query_params
    search, state = given.get("q", ""), given.get("state", "")
    found: Found = await access.shared.get(SHARED, SECONDS, partial(_read, access.admin))
    listed = found.listed or ()
    shown = chosen(listed, search, state)
    more = [one.transactional_id for one in shown[:MOST_DESCRIBED] if one.transactional_id not in found.unfinished]
    return render(
        request,
        "transactions.html",
        listed=shown[:MOST_IDS],
        left=max(len(shown) - MOST_IDS, 0),
        total=len(listed),
        unfinished=sum(one.state in OPEN_STATES for one in listed),
        described={**found.unfinished, **await _described(access.admin, more)},
        blocked=found.blocked,
        unlooked=found.unlooked,
        states=sorted({one.state for one in listed}),
        q=search,
        state=state,
        is_told=found.listed is not None,
        now=access.now(),
        longest_minutes=LONGEST_MS // 60_000,
    )


async def _read(admin: AsyncAdmin) -> Found:
    try:
        listed = await list_transactions(admin)
    except UnsupportedVersion:
        listed = None
    names = [one.transactional_id for one in listed or () if one.state in OPEN_STATES][:MOST_DESCRIBED]
    described = await _described(admin, names)
    ends = await _stable_and_high(admin)
    late = sorted(key for key, (stable, end) in ends.items() if stable < end)
    looked = late[:MOST_BLOCKED]
    open_ = await _open(admin, looked)
    blocked = blocked_partitions({key: ends[key] for key in looked}, open_, described.values())
    return Found(listed, described, blocked, len(late) - len(looked))


async def _described(admin: AsyncAdmin, ids: Iterable[str]) -> dict[str, TransactionDescription]:
    found = await asyncio.gather(*(describe_transactions(admin, [one]) for one in ids))
    return {name: one for each in found for name, one in each.items() if isinstance(one, TransactionDescription)}


async def _open(admin: AsyncAdmin, partitions: list[TopicPartition]) -> list[OpenTransaction]:
    try:
        return await open_transactions(admin, partitions) if partitions else []
    except UnsupportedVersion:
        return []


async def _stable_and_high(admin: AsyncAdmin) -> Mapping[TopicPartition, tuple[int, int]]:
    """The last stable offset and the high watermark of every partition: two requests for each broker."""
    metadata = await admin.cluster.refresh(None)
    keys = [
        TopicPartition(topic.name, info.partition)
        for topic in metadata.topics.values()
        for info in topic.partitions.values()
        if info.leader != NO_LEADER
    ]
    asked = dict.fromkeys(keys, LATEST_TIMESTAMP)
    # The stable offsets first: a transaction that ends in between must not look open.
    stable = await _ends(admin, asked, READ_COMMITTED)
    high = await _ends(admin, asked, READ_UNCOMMITTED)
    late = {key: asked[key] for key in stable if key in high and stable[key] < high[key]}
    again = await _ends(admin, late, READ_COMMITTED) if late else {}
    stable = {**stable, **again}
    return {key: (stable[key], max(high[key], stable[key])) for key in stable if key in high}


async def _ends(admin: AsyncAdmin, asked: Mapping[TopicPartition, int], isolation: int) -> dict[TopicPartition, int]:
    found = await admin.cluster.by_leader(asked, partial(list_offsets, admin.cluster, isolation_level=isolation))
    return {key: one.offset for key, one in found.items() if not isinstance(one, KafkaError)}


async def abort(request: Request, values: Values) -> Plan | Form:
    """Abort a transaction in one partition, past its coordinator."""
    topic, number, start = values.get("topic", ""), values.get("partition", ""), values.get("start_offset", "")
    partition, offset = whole(number), whole(start)
    if not topic or partition is None or offset is None:
        return _form(
            values,
            None if not (topic or number or start) else "give a topic, and a partition and an offset as whole numbers",
        )
    admin = access_of(request).admin
    key = TopicPartition(topic, partition)
    info = await admin.cluster.topic(topic)
    if key.partition not in info.partitions:
        return _form(values, f"{topic} has no partition {number}: it has 0 to {len(info.partitions) - 1}")
    found = [one for one in await open_transactions(admin, [key]) if one.start_offset == offset]
    if not found:
        return _form(values, f"no open transaction starts at offset {start} of {key}: perhaps it is over")
    is_known = not await without_coordinator(admin, found)
    marker = found[0].marker

    async def do() -> str:
        error = await abort_transaction(admin, key, marker)
        if error is not None:
            raise OttlaError(f"could not abort the transaction in {key}: {error}")
        access_of(request).shared.forget(SHARED)
        return f"Aborted the transaction of producer {marker.producer_id} in {key}."

    effects = [
        f"The transaction of producer {marker.producer_id} that begins at offset {start} of {key} is aborted in this "
        "partition.",
        "read_committed consumers can read on, and never see its records.",
    ]
    if is_known:
        effects.append(
            "Its coordinator knows it and will end it. If the producer commits it, its records here are lost."
        )
    place = [*option("--topic", topic), "--partition", number, "--start-offset", start]
    return Plan(
        f"Abort the transaction at offset {start} of {key}",
        effects,
        ["transactions", "abort", *place, *(["--yes"] if is_known else [])],
        do,
        button="Abort it",
        danger=True,
        back="/transactions",
    )


def _form(values: Values, problem: str | None) -> Form:
    return Form(
        "Abort a transaction",
        [
            Field("topic", "Topic", values.get("topic", ""), required=True),
            Field("partition", "Partition", values.get("partition", ""), "number", required=True),
            Field("start_offset", "First offset", values.get("start_offset", ""), "number", required=True),
        ],
        problem,
        "The list of transactions has a button for each one.",
        back="/transactions",
    )


title, path = "Transactions", "/transactions"
routes = [Route("/transactions", show), action("/transactions/abort", abort)]
