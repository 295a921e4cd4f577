"""The batch queries of the guide, and the options of batch queries."""

from __future__ import annotations

from typing import Any

from tests.compat_spark.cases import case
from tests.compat_spark.world import SECOND, START, World, rows_of


@case("batch", "one topic")
def one_topic(world: World) -> Any:
    topic = world.filled(10, 4)
    frame = world.read(topic)
    texts = frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    return frame.dtypes, rows_of(frame), rows_of(texts)


@case("batch", "several topics from and to offsets")
def offsets(world: World) -> Any:
    first, second = world.filled(30, 10), world.filled(5)
    start = {first: {"0": 23, "1": -2}, second: {"0": -2}}
    end = {first: {"0": 28, "1": -1}, second: {"0": -1}}
    return world.rows(f"{first},{second}", startingOffsets=start, endingOffsets=end)


@case("batch", "topics by pattern, `earliest` to `latest`")
def pattern(world: World) -> Any:
    topic = world.filled(5, 5)
    return world.rows(subscribePattern=f"{topic[:-1]}.", startingOffsets="earliest", endingOffsets="latest")


@case("batch", "`assign`")
def assign(world: World) -> Any:
    topic = world.filled(3, 4, 5)
    return world.rows(assign={topic: [0, 2]})


@case("batch", "`includeHeaders`")
def headers(world: World) -> Any:
    frame = world.read(world.filled(4), includeHeaders="true")
    return frame.dtypes, rows_of(frame)


@case("batch", "`startingTimestamp`, `endingTimestamp`")
def timestamps(world: World) -> Any:
    topic = world.filled(10, 8)
    return _values(world, topic, startingTimestamp=START + 3 * SECOND, endingTimestamp=START + 6 * SECOND)


@case("batch", "`startingOffsetsByTimestamp`, `endingOffsetsByTimestamp`")
def timestamps_by_partition(world: World) -> Any:
    topic = world.filled(10, 8)
    start = {topic: {"0": START + 3 * SECOND, "1": START}}
    end = {topic: {"0": START + 99 * SECOND, "1": START + 2 * SECOND}}
    return _values(world, topic, startingOffsetsByTimestamp=start, endingOffsetsByTimestamp=end)


@case("batch", "timestamps take precedence over offsets")
def precedence(world: World) -> Any:
    topic = world.filled(10)
    return _values(
        world,
        topic,
        startingTimestamp=START + 7 * SECOND,
        startingOffsets="earliest",
        startingOffsetsByTimestamp={topic: {"0": START}},
    )


@case("batch", "`startingOffsetsByTimestampStrategy`: `error`")
def strategy_error(world: World) -> Any:
    topic = world.filled(3)
    return world.fails(lambda: _values(world, topic, startingTimestamp=START + 99 * SECOND))


@case("batch", "`startingOffsetsByTimestampStrategy`: `latest`")
def strategy_latest(world: World) -> Any:
    topic = world.filled(3)
    return _values(world, topic, startingTimestamp=START + 99 * SECOND, startingOffsetsByTimestampStrategy="latest")


@case("batch", "`failOnDataLoss` is `false`")
def data_loss_passed(world: World) -> Any:
    topic = world.own(10)
    world.delete_before(topic, 6)
    return _values(world, topic, startingOffsets={topic: {"0": 2}}, failOnDataLoss="false")


@case("batch", "`failOnDataLoss` is `true`")
def data_loss_fails(world: World) -> Any:
    topic = world.own(10)
    world.delete_before(topic, 6)
    return world.fails(lambda: _values(world, topic, startingOffsets={topic: {"0": 2}}))


@case("batch", "`minPartitions`")
def min_partitions(world: World) -> Any:
    topic = world.filled(30, 10)
    frame = world.read(topic, minPartitions=4)
    return frame.rdd.getNumPartitions(), frame.count()


@case("batch", "`maxRecordsPerPartition`")
def max_records(world: World) -> Any:
    topic = world.filled(30, 10)
    start, end = {topic: {"0": 0, "1": 0}}, {topic: {"0": 30, "1": 10}}
    frame = world.read(topic, maxRecordsPerPartition=10, startingOffsets=start, endingOffsets=end)
    return frame.rdd.getNumPartitions(), frame.count()


@case("batch", "`maxRecordsPerPartition` up to `latest`")
def max_records_latest(world: World) -> Any:
    topic = world.filled(30, 10)
    return world.read(topic, maxRecordsPerPartition=10).rdd.getNumPartitions()


@case("batch", "`kafkaConsumer.pollTimeoutMs`, `fetchOffset.numRetries`, `fetchOffset.retryIntervalMs`")
def timeouts(world: World) -> Any:
    options = {"kafkaConsumer_pollTimeoutMs": 60_000, "fetchOffset_numRetries": 2, "fetchOffset_retryIntervalMs": 20}
    return _values(world, world.filled(3), **options)


@case("batch", "`partition.metadata.cache.ttl.ms`")
def metadata_cache(world: World) -> Any:
    return _values(world, world.filled(3), partition_metadata_cache_ttl_ms=1000)


@case("batch", "`groupIdPrefix`")
def group_prefix(world: World) -> Any:
    return _values(world, world.filled(3), groupIdPrefix="mine")


@case("batch", "`kafka.group.id`, `kafka.session.timeout.ms`")
def group(world: World) -> Any:
    return _values(world, world.filled(3), kafka_group_id="mine", kafka_session_timeout_ms=6000)


@case("batch", "`kafka.*` client configs")
def client_configs(world: World) -> Any:
    options = {"kafka_fetch_min_bytes": 1, "kafka_max_poll_records": 2, "kafka_isolation_level": "read_committed"}
    return _values(world, world.filled(3), **options)


@case("batch", "an empty topic")
def empty(world: World) -> Any:
    return _values(world, world.topic(2))


@case("batch", "a topic that does not exist")
def missing(world: World) -> Any:
    return world.fails(lambda: _values(world, "guide-nowhere"))


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@case("refused", "`assign` together with `subscribe`")
def both(world: World) -> Any:
    topic = world.filled(3)
    return world.fails(lambda: _values(world, topic, assign={topic: [0]}))


@case("refused", "none of `assign`, `subscribe`, `subscribePattern`")
def none(world: World) -> Any:
    return world.fails(world.rows)


@case("refused", "no `kafka.bootstrap.servers`")
def no_servers(world: World) -> Any:
    topic = world.filled(1)
    return world.fails(lambda: world.spark.read.format(world.format).option("subscribe", topic).load().collect())


@case("refused", "batch with `startingOffsets` `latest`")
def latest_batch(world: World) -> Any:
    topic = world.filled(3)
    return world.fails(lambda: _values(world, topic, startingOffsets="latest"))


@case("refused", "batch with a starting offset of -1")
def latest_batch_json(world: World) -> Any:
    topic = world.filled(3)
    return world.fails(lambda: _values(world, topic, startingOffsets={topic: {"0": -1}}))


@case("refused", "batch with `endingOffsets` `earliest` or -2")
def earliest_end(world: World) -> Any:
    topic = world.filled(3)
    options: list[dict[str, Any]] = [{"endingOffsets": "earliest"}, {"endingOffsets": {topic: {"0": -2}}}]
    return [world.fails(lambda one=one: _values(world, topic, **one)) for one in options]


@case("refused", "offsets that do not name all partitions")
def incomplete(world: World) -> Any:
    topic = world.filled(3, 3)
    return world.fails(lambda: _values(world, topic, startingOffsets={topic: {"0": 1}}))


@case("refused", "`kafka.auto.offset.reset`, `kafka.enable.auto.commit`, `kafka.interceptor.classes`, deserializers")
def not_settable(world: World) -> Any:
    topic = world.filled(1)
    names = ("auto.offset.reset", "enable.auto.commit", "interceptor.classes", "key.deserializer", "value.deserializer")
    return [world.fails(lambda name=name: _values(world, topic, **{f"kafka.{name}": "x"})) for name in names]


@case("refused", "a schema")
def schema(world: World) -> Any:
    topic = world.filled(1)
    reader = world.spark.read.format(world.format).schema("a int").options(**world.options(topic))
    return world.fails(lambda: reader.load().collect())


@case("options", "unknown options")
def unknown_option(world: World) -> Any:
    topic = world.filled(1)
    return world.fails(lambda: len(_values(world, topic, startingOffset="earliest")))


@case("options", "`load(path)`")
def path(world: World) -> Any:
    topic = world.filled(1)
    reader = world.spark.read.format(world.format).options(**world.options(topic))
    return world.fails(lambda: reader.load("anything").count())


# ── when offsets are looked up ───────────────────────────────────────────────────────────────────────────────────────


@case("queries", "a frame sees new records in each action")
def fresh_frame(world: World) -> Any:
    topic = world.own(3)
    frame = world.read(topic)
    before = frame.count(), frame.where("offset >= 1").count()
    world.fill(topic, 5, first=3)
    return before, frame.count(), frame.where("offset >= 1").count()


@case("queries", "a second `collect()` of the same frame")
def collected_again(world: World) -> Any:
    topic = world.own(3)
    frame = world.read(topic)
    before = len(frame.collect())
    world.fill(topic, 5, first=3)
    return before, len(frame.collect()), len(frame.select("value").collect())


@case("queries", "`CREATE TEMPORARY VIEW … USING`")
def temporary_view(world: World) -> Any:
    topic = world.own(3)
    return _sql(world, topic, "TEMPORARY VIEW", f"view_{world.format}")


@case("queries", "`CREATE TABLE … USING … OPTIONS`")
def table(world: World) -> Any:
    topic = world.own(3)
    name = f"table_{world.format}"
    try:
        return _sql(world, topic, "TABLE", name)
    finally:
        world.spark.sql(f"DROP TABLE IF EXISTS {name}")


@case("queries", "`readStream.table` of a table `USING … OPTIONS`")
def stream_of_table(world: World) -> Any:
    topic, name = world.filled(3), f"streamed_{world.format}"
    given = world.options(topic, startingOffsets="earliest")
    options = ", ".join(f"`{key}` '{value}'" for key, value in given.items())
    world.spark.sql(f"CREATE TABLE {name} USING {world.format} OPTIONS ({options})")
    try:
        return world.fails(lambda: world.batches(frame=world.spark.readStream.table(name)))
    finally:
        world.spark.sql(f"DROP TABLE IF EXISTS {name}")


@case("queries", "filters after filters on one frame")
def filters(world: World) -> Any:
    frame = world.read(world.filled(4, 5, 6))
    conditions = ("partition = 1", "offset >= 3", "partition in (0, 2) and offset < 2", "true")
    return [frame.where(condition).count() for condition in conditions]


@case("queries", "a frame joined with itself")
def self_join(world: World) -> Any:
    frame = world.read(world.filled(4, 5))
    return frame.join(frame.selectExpr("partition", "offset", "value other"), ["partition", "offset"]).count()


def _sql(world: World, topic: str, kind: str, name: str) -> Any:
    options = ", ".join(f"`{key}` '{value}'" for key, value in world.options(topic, includeHeaders="true").items())
    world.spark.sql(f"CREATE {kind} {name} USING {world.format} OPTIONS ({options})")
    before = world.spark.sql(f"SELECT * FROM {name}").columns, world.spark.sql(f"SELECT * FROM {name}").count()
    world.fill(topic, 2, first=3)
    return before, world.spark.sql(f"SELECT * FROM {name} WHERE offset > 0").count()


def _values(world: World, subscribe: str, **options: Any) -> list[Any]:
    return sorted((row.partition, row.offset, bytes(row.value)) for row in world.read(subscribe, **options).collect())
