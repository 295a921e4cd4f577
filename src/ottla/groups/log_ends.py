"""How long logs were at certain times: ListOffsets, a few requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import list_offsets
from ottla.errors import KafkaError
from ottla.types import Millis, TopicPartition

AT_ONCE = 8
TIMEOUT_MS: Millis = 5_000


class FirstRecord(NamedTuple):
    """The first record at or after a time."""

    offset: int
    """-1 if there is none."""
    written: Millis
    """Its timestamp; -1 if it is unknown."""


async def offsets_at(
    cluster: Cluster, partitions: Sequence[TopicPartition], times: Sequence[Millis]
) -> dict[TopicPartition, dict[Millis, FirstRecord]]:
    """The first record at or after each time, by partition. What fails is left out."""
    found: dict[TopicPartition, dict[Millis, FirstRecord]] = {key: {} for key in partitions}
    waiting = list(dict.fromkeys(times))

    async def work() -> None:
        while waiting:
            at = waiting.pop()
            answers = await cluster.by_leader(
                dict.fromkeys(partitions, at), partial(list_offsets, cluster), timeout_ms=TIMEOUT_MS
            )
            for key, answer in answers.items():
                if not isinstance(answer, KafkaError):
                    found[key][at] = FirstRecord(answer.offset, answer.timestamp)

    if partitions:
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return found
