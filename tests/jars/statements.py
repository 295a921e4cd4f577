"""Run SQL with the jars of a table format: `python statements.py '{"conf": {…}, "statements": […]}'`.

A process of the environment that the jars need, which has PySpark and nothing of ottla. Prints the rows as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    given = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in given["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print(json.dumps([[row.asDict() for row in spark.sql(one).collect()] for one in given["statements"]], default=str))


if __name__ == "__main__":
    main()
