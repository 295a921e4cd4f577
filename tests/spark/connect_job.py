"""The job of test_spark_connect.py: a client of Spark Connect, with a server on this machine that it starts itself.

python -m tests.spark.connect_job SERVERS TOPIC OUTPUT_TOPIC DIRECTORY
"""

from __future__ import annotations

import json
import sys

from ottla.spark import prepare


def main(servers: str, topic: str, output: str, directory: str) -> None:
    prepare("local[2]")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]").appName("connect job")
    for name, value in {
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    cluster = {"kafka.bootstrap.servers": servers}
    batch = spark.read.format("ottla").options(**cluster, subscribe=topic).load()
    found = {"session": type(spark).__module__, "count": batch.count()}
    batch.selectExpr("key", "value").write.format("ottla").mode("append").options(**cluster, topic=output).save()
    options = {**cluster, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    stream = spark.readStream.format("ottla").options(**options).load()
    query = (
        stream.selectExpr("key", "value")
        .writeStream.format("ottla")
        .options(**cluster, topic=output)
        .option("checkpointLocation", f"{directory}/topic-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["streamed"] = sum(one.numInputRows for one in query.recentProgress)
    table = (
        stream.selectExpr("cast(value as string) value")
        .writeStream.format("parquet")
        .option("path", f"{directory}/table")
        .option("checkpointLocation", f"{directory}/table-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    table.awaitTermination()
    found["table"] = spark.read.schema("value string").parquet(f"{directory}/table").count()
    found["written"] = spark.read.format("ottla").options(**cluster, subscribe=output).load().count()
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
