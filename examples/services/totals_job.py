"""A Spark job that sums the orders of each customer and writes the totals back to a topic.

python totals_job.py localhost:9092
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

SOURCE, TARGET = "orders", "totals"


def totals(spark: SparkSession, servers: str) -> DataFrame:
    """The total of each customer over all orders that are there now."""
    orders = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", SOURCE)
        .load()
        .selectExpr("from_json(cast(value as string), 'customer string, total long') as order")
    )
    return orders.groupBy("order.customer").sum("order.total").toDF("customer", "total")


def run(spark: SparkSession, servers: str) -> None:
    """Write the totals, with the customer as the key."""
    rows = totals(spark, servers).selectExpr("customer as key", "cast(total as string) as value")
    target = {"kafka.bootstrap.servers": servers, "topic": TARGET}
    rows.write.format("ottla").mode("append").options(**target).save()


if __name__ == "__main__":
    from ottla.spark import session

    run(session("totals"), sys.argv[1])
