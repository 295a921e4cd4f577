"""Download Spark's Kafka connector with Maven. `jars()` are the files for `spark.jars`.

Not every release of Spark has a connector on Maven Central, nor all of its modules, so each part has its own version:
the newest one that is there. The interfaces have not changed for years, and a trial run comes before the measurement.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import maven

VERSION = "4.2.0"


def parts(version: str) -> list[str]:
    """The connector, and what it needs and Spark does not include."""
    return [
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ]


def jars(version: str = VERSION) -> list[Path]:
    """Return the files of the connector. `Unavailable` says why there are none."""
    return sorted(maven.directory(f"spark-connector-{version}", parts(version), alone=True).glob("*.jar"))
