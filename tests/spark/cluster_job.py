"""The job of test_spark_cluster.py, as a user's program is: what it is run on is its first argument and nothing else.

python -m tests.spark.cluster_job spark://127.0.0.1:41234 SERVERS TOPIC OUTPUT_TOPIC DIRECTORY
"""

from __future__ import annotations

import sys

from ottla.spark import session


def main(master: str, servers: str, topic: str, output: str, directory: str) -> None:
    conf = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    spark = session("cluster job", master=master, conf=conf, fast=True, log_level="error")
    cluster = {"kafka.bootstrap.servers": servers}
    options = {**cluster, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "600"}
    source = spark.readStream.format("ottla").options(**options).load()
    table = (
        source.selectExpr("cast(value as string) value", "partition", "offset")
        .writeStream.format("parquet")
        .option("path", f"{directory}/table")
        .option("checkpointLocation", f"{directory}/table-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    copy = (
        source.selectExpr("key", "value")
        .writeStream.format("ottla")
        .options(**cluster, topic=output)
        .option("checkpointLocation", f"{directory}/topic-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    for query in (table, copy):
        query.awaitTermination()
    print(spark.sparkContext.master)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
