"""Download Spark's Kafka connector from Maven Central. `jars()` are the files for `spark.jars`.

Not every release of Spark has a connector or all of its modules on Maven Central, so the newest available one is
used. Its interfaces have not changed for years, and a trial run comes before the measurement. Downloaded jars are
kept.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path

from benchmarks.peer import Unavailable
from ottla.spark.java import cache

CENTRAL = "https://repo1.maven.org/maven2"
SPARK = "org/apache/spark"
CONNECTOR, TOKENS = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"
#: Dependencies of the connector that Spark does not include, by group, with the required versions.
OTHERS = {"kafka-clients": "org/apache/kafka", "commons-pool2": "org/apache/commons"}
OLDER = ("4.3.0", "4.2.0", "4.1.1", "4.1.0", "4.0.1", "4.0.0")


def jars(spark_version: str) -> tuple[str, list[Path]]:
    """Return the version of the connector and its files. `Unavailable` says why there are none."""
    version, connector = _newest(CONNECTOR, (spark_version, *OLDER))
    _, tokens = _newest(TOKENS, (version, *OLDER))
    description = _got(f"{SPARK}/{CONNECTOR}/{version}/{CONNECTOR}-{version}.pom").read_text()
    found = [connector, tokens]
    for name, group in OTHERS.items():
        asked = re.search(rf"<artifactId>{name}</artifactId>\s*<version>([^<$]+)</version>", description)
        if asked is None:
            raise Unavailable(f"the connector {version} does not say which {name} it needs")
        found.append(_got(f"{group}/{name}/{asked[1]}/{name}-{asked[1]}.jar"))
    return version, found


def _newest(name: str, versions: tuple[str, ...]) -> tuple[str, Path]:
    for version in dict.fromkeys(versions):
        try:
            return version, _got(f"{SPARK}/{name}/{version}/{name}-{version}.jar")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise Unavailable(f"Maven Central: {error}") from None
    raise Unavailable(f"Maven Central has no {name} of {', '.join(versions)}")


def _got(path: str) -> Path:
    kept = cache("maven") / path.rpartition("/")[2]
    if not kept.exists():
        try:
            with urllib.request.urlopen(f"{CENTRAL}/{path}", timeout=60) as answer:
                content = answer.read()
        except urllib.error.HTTPError:
            raise
        except OSError as error:
            raise Unavailable(f"Maven Central cannot be reached: {error}") from None
        partial = kept.with_suffix(".part")
        partial.write_bytes(content)
        partial.replace(kept)
    return kept
