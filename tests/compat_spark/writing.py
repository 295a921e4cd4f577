"""The sinks of the guide: batch and streaming, topics by option and by column, save and output modes."""

from __future__ import annotations

from typing import Any

from tests.compat_spark.cases import case
from tests.compat_spark.world import World

ROWS = """
select cast(id as string) key, concat('value-', id) value,
       array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) headers,
       cast(id % 2 as int) partition
from range(8)
"""


@case("write", "to the topic of the option")
def option(world: World) -> Any:
    target = world.topic(2)
    world.write(world.spark.sql(ROWS).drop("partition", "headers"), topic=target)
    return world.content(target)


@case("write", "to the topics of a column")
def column(world: World) -> Any:
    first, second = world.topic(), world.topic()
    rows = world.spark.sql(ROWS).selectExpr(f"if(partition = 0, '{first}', '{second}') topic", "key", "value")
    world.write(rows)
    return world.content(first), world.content(second)


@case("write", "the option overrides the column")
def overrides(world: World) -> Any:
    target = world.topic()
    world.write(world.spark.sql(ROWS).selectExpr("'nowhere' topic", "key", "value"), topic=target)
    return world.content(target)


@case("write", "headers and partition columns, `includeHeaders`")
def columns(world: World) -> Any:
    target = world.topic(2)
    world.write(world.spark.sql(ROWS), topic=target, includeHeaders="true")
    return world.content(target)


@case("write", "only a value; a null value; other columns")
def minimal(world: World) -> Any:
    target = world.topic()
    world.write(world.spark.sql("select if(id = 0, null, cast(id as string)) value, id from range(3)"), topic=target)
    return world.content(target)


@case("write", "binary key and value")
def binary(world: World) -> Any:
    target = world.topic()
    world.write(world.read(world.filled(4)).select("key", "value"), topic=target)
    return world.content(target)


@case("write", "`kafka.*` producer configs")
def configs(world: World) -> Any:
    target = world.topic()
    world.write(world.spark.sql(ROWS).select("value"), topic=target, kafka_compression_type="gzip", kafka_acks="all")
    return world.content(target)


@case("write", "the default save mode (`errorifexists`)")
def default_mode(world: World) -> Any:
    target = world.topic()
    return world.fails(lambda: world.write(world.spark.sql("select 'x' value"), None, topic=target))


@case("write", "save modes `overwrite` and `ignore` are refused")
def other_modes(world: World) -> Any:
    target = world.topic()
    rows = world.spark.sql("select 'x' value")
    return [world.fails(lambda mode=mode: world.write(rows, mode, topic=target)) for mode in ("overwrite", "ignore")]


@case("write", "no value, no topic, a wrong type, serializers are refused")
def mistakes(world: World) -> Any:
    target, sql = world.topic(), world.spark.sql
    return [
        world.fails(lambda: world.write(sql("select 'x' key"), topic=target)),
        world.fails(lambda: world.write(sql("select 'x' value"))),
        world.fails(lambda: world.write(sql("select 1 value"), topic=target)),
        world.fails(lambda: world.write(sql("select 'x' value"), topic=target, kafka_key_serializer="x")),
    ]


@case("write", "`kafka.partitioner.class`")
def partitioner(world: World) -> Any:
    target = world.topic(2)
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    rows = world.spark.sql("select 'x' value")
    return world.fails(lambda: world.write(rows, topic=target, kafka_partitioner_class=name))


@case("write stream", "to the topic of the option")
def stream_option(world: World) -> Any:
    target = world.topic()
    frame = world.stream(world.filled(5), startingOffsets="earliest")
    world.write_stream(frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)"), topic=target)
    return world.content(target)


@case("write stream", "to the topics of a column")
def stream_column(world: World) -> Any:
    target = world.topic()
    frame = world.stream(world.filled(5), startingOffsets="earliest")
    world.write_stream(frame.selectExpr(f"'{target}' topic", "CAST(key AS STRING)", "CAST(value AS STRING)"))
    return world.content(target)


@case("write stream", "output mode `update`")
def update(world: World) -> Any:
    return _totals(world, "update")


@case("write stream", "output mode `complete`")
def complete(world: World) -> Any:
    return _totals(world, "complete")


def _totals(world: World, mode: str) -> Any:
    target = world.topic()
    frame = world.stream(world.filled(8), startingOffsets="earliest", maxOffsetsPerTrigger=4)
    totals = frame.selectExpr("offset % 3 as third").groupBy("third").count()
    world.write_stream(totals.selectExpr("concat(third, ':', count) value"), mode, topic=target)
    return world.content(target)
