"""The streaming queries of the guide, their options, triggers and progress."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.compat_spark.cases import case
from tests.compat_spark.world import PATIENCE, SECOND, START, World


@case("stream", "one topic")
def one_topic(world: World) -> Any:
    topic = world.filled(10, 4)
    return world.stream(topic).dtypes, world.batches(topic, startingOffsets="earliest")


@case("stream", "one topic with headers")
def headers(world: World) -> Any:
    return world.batches(world.filled(5), startingOffsets="earliest", includeHeaders="true")


@case("stream", "several topics")
def several(world: World) -> Any:
    return world.batches(f"{world.filled(3, 3)},{world.filled(4)}", startingOffsets="earliest")


@case("stream", "topics by pattern")
def pattern(world: World) -> Any:
    return world.batches(subscribePattern=f"{world.filled(3)[:-1]}.", startingOffsets="earliest")


@case("stream", "`assign`")
def assign(world: World) -> Any:
    return world.batches(assign={world.filled(3, 4): [1]}, startingOffsets="earliest")


@case("stream", "`startingOffsets` as JSON")
def offsets(world: World) -> Any:
    topic = world.filled(10, 10, 10)
    return world.batches(topic, startingOffsets={topic: {"0": 4, "1": -1, "2": -2}})


@case("stream", "`startingTimestamp`")
def timestamp(world: World) -> Any:
    return world.batches(world.filled(10, 10), startingTimestamp=START + 6 * SECOND)


@case("stream", "`startingOffsetsByTimestamp`")
def timestamps(world: World) -> Any:
    topic = world.filled(10, 10)
    return world.batches(topic, startingOffsetsByTimestamp={topic: {"0": START + 6 * SECOND, "1": START}})


@case("stream", "`startingOffsetsByTimestampStrategy`")
def strategy(world: World) -> Any:
    topic = world.filled(4)
    late = {"startingTimestamp": START + 99 * SECOND}
    error = world.fails(lambda: world.batches(topic, **late))
    return error, world.batches(topic, startingOffsetsByTimestampStrategy="latest", **late)


@case("stream", "`maxOffsetsPerTrigger`, shared in proportion")
def max_offsets(world: World) -> Any:
    batches = world.batches(world.filled(30, 10), startingOffsets="earliest", maxOffsetsPerTrigger=8)
    return [len(batch) for batch in batches]


@case("stream", "`minOffsetsPerTrigger`, `maxTriggerDelay`")
def min_offsets(world: World) -> Any:
    topic = world.own(2)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 5, "maxTriggerDelay": "2s"}
    with world.running(world.stream(topic, **options)) as query:
        _until_read(query, 2)  # the first batch does not wait
        world.fill(topic, 2, first=2)
        _until_read(query, 4)  # fewer than 5: after the delay
        world.fill(topic, 5, first=4)
        return _until_read(query, 9)


@case("stream", "`minPartitions`, `maxRecordsPerPartition`")
def splitting(world: World) -> Any:
    topic = world.filled(30, 10)
    return [
        sum(map(len, world.batches(topic, startingOffsets="earliest", **option)))
        for option in ({"minPartitions": 5}, {"maxRecordsPerPartition": 7})
    ]


@case("stream", "`failOnDataLoss`")
def data_loss(world: World) -> Any:
    found = []
    for fails in ("true", "false"):
        topic, checkpoint = world.own(4), world.checkpoint()
        world.batches(topic, startingOffsets="earliest", checkpoint=checkpoint)
        world.fill(topic, 6, first=4)
        world.delete_before(topic, 7)
        found.append(
            world.fails(
                lambda topic=topic, checkpoint=checkpoint, fails=fails: [
                    row[1] for row in world.batches(topic, checkpoint=checkpoint, failOnDataLoss=fails)[0]
                ]
            )
        )
    return found


@case("stream", "resume from a checkpoint, with a new partition")
def resume(world: World) -> Any:
    topic, checkpoint = world.own(3), world.checkpoint()
    first = world.batches(topic, startingOffsets="earliest", checkpoint=checkpoint)
    world.admin.create_partitions({topic: 2})
    world.fill(topic, 2, first=3)
    world.fill(topic, 2, partition=1)
    second = world.batches(topic, checkpoint=checkpoint)
    return [[row[1] for row in batch] for batch in (*first, *second)]


@case("stream", "other topics on the same checkpoint")
def other_topics(world: World) -> Any:
    topic, other, checkpoint = world.filled(3), world.filled(2), world.checkpoint()
    world.batches(topic, startingOffsets="earliest", checkpoint=checkpoint)
    return world.fails(lambda: world.batches(other, checkpoint=checkpoint))


@case("stream", "continue with the checkpoint of the other data source")
def exchange(world: World) -> Any:
    topic, checkpoint = world.own(3), world.checkpoint()
    mine, other = world.format, "kafka" if world.format == "ottla" else "ottla"
    world.format = other
    world.batches(topic, startingOffsets="earliest", checkpoint=checkpoint)
    world.format = mine
    world.fill(topic, 2, first=3)
    return [row[1] for batch in world.batches(topic, checkpoint=checkpoint) for row in batch]


@case("stream", "`endingOffsets`, `endingOffsetsByTimestamp` are refused")
def no_end(world: World) -> Any:
    topic = world.filled(1)
    ends: list[dict[str, Any]] = [{"endingOffsets": "latest"}, {"endingOffsetsByTimestamp": {topic: {"0": START}}}]
    return [world.fails(lambda end=end: world.batches(topic, **end)) for end in ends]


@case("stream", "`endingTimestamp` in a stream")
def no_ending_timestamp(world: World) -> Any:
    topic = world.filled(1)
    return world.fails(lambda: len(world.batches(topic, startingOffsets="earliest", endingTimestamp=START)))


# ── triggers and progress ────────────────────────────────────────────────────────────────────────────────────────────


@case("triggers", "`processingTime`, and the default")
def processing_time(world: World) -> Any:
    found = []
    for trigger in ({}, {"processingTime": "100 milliseconds"}):
        topic = world.own(3)
        with world.running(world.stream(topic, startingOffsets="earliest"), **trigger) as query:
            _until_read(query, 3)
            world.fill(topic, 4, first=3)
            found.append(_until_read(query, 7))
    return found


@case("triggers", "`availableNow`, `once`")
def ends(world: World) -> Any:
    topic = world.filled(5)
    kinds = ({"availableNow": True}, {"once": True})
    return [world.batches(topic, startingOffsets="earliest", trigger=kind) for kind in kinds]


@case("triggers", "`continuous`")
def continuous(world: World) -> Any:
    return world.fails(lambda: _first_rows(world, continuous="1 second"))


@case("triggers", "`realTime`")
def real_time(world: World) -> Any:
    return world.fails(lambda: _first_rows(world, realTime="5 seconds"))


def _first_rows(world: World, **trigger: Any) -> str:
    frame = world.stream(world.filled(3), startingOffsets="earliest").selectExpr("value")
    query = frame.writeStream.format("console").option("checkpointLocation", str(world.checkpoint()))
    started = query.outputMode("update" if "realTime" in trigger else "append").trigger(**trigger).start()
    try:
        if started.awaitTermination(5):
            raise RuntimeError("the query ended")
    finally:
        started.stop()
    return "runs"


@case("progress", "`startOffset`, `endOffset`, `latestOffset`")
def progress_offsets(world: World) -> Any:
    topic = world.filled(9)
    with world.running(world.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)) as query:
        _until_read(query, 9)
        sources = [one.sources[0] for one in query.recentProgress if one.numInputRows]
        return [
            [None if text is None else json.loads(text) for text in (one.startOffset, one.endOffset, one.latestOffset)]
            for one in sources
        ]


@case("progress", "metrics: `avgOffsetsBehindLatest`, `minOffsetsBehindLatest`, `maxOffsetsBehindLatest`")
def metrics(world: World) -> Any:
    topic = world.filled(6, 2)
    with world.running(world.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)) as query:
        _until_read(query, 8)
        return [dict(one.sources[0].metrics) for one in query.recentProgress if one.numInputRows]


def _until_read(query: Any, wanted: int) -> int:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if query.exception() is not None:
            raise query.exception()
        rows = sum(one.numInputRows for one in query.recentProgress)
        if rows >= wanted:
            return int(rows)
        time.sleep(0.05)
    raise TimeoutError(f"the query has not read {wanted} rows")
