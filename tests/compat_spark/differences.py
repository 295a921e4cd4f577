"""The known differences: what each data source does, and why. `python -m tests.compat_spark` fails after any other."""

from __future__ import annotations

#: By the name of a case: Spark's connector, ottla, the reason.
REASONS: dict[str, tuple[str, str, str]] = {
    "`maxRecordsPerPartition` up to `latest`": (
        "not split",
        "split",
        "Spark's connector compares sizes before it has looked up `latest`",
    ),
    "a second `collect()` of the same frame": (
        "new records",
        "the same rows",
        'a frame keeps its plan, and Spark\'s connector looks up `latest` in each task; use `frame.select("*")`',
    ),
    "`readStream.table` of a table `USING … OPTIONS`": (
        "refused",
        "works",
        "Spark passes the schema of the table to its connector, which accepts none",
    ),
    "unknown options": ("ignored", "refused", "a typing error such as `startingOffset` would read other records"),
    "`load(path)`": ("ignored", "refused", "a path would have no effect"),
    "`endingTimestamp` in a stream": (
        "ignored",
        "refused",
        "a stream has no end, and other ending options are refused",
    ),
    "`continuous`": ("works", "refused by Spark", "Spark has no continuous processing for Python sources"),
    "`realTime`": ("works", "refused by Spark", "Spark has no real-time mode for Python sources"),
    "the default save mode (`errorifexists`)": (
        "appends",
        "refused by Spark",
        'Spark asks no Python sink, and accepts only `mode("append")` and `mode("overwrite")`',
    ),
    "`kafka.partitioner.class`": ("works", "refused", "it is a Java class: add a column `partition` instead"),
}

#: What no case can show.
ELSEWHERE: dict[str, tuple[str, str, str]] = {
    "`kafka.group.id`": (
        "only for authorization",
        "finished offsets are committed to it",
        "lag monitors show the progress; `startingOffsets=committed` can start from it",
    ),
    "JKS stores": ("work", "refused", "only Java reads them; the error has the command that converts them to PKCS12"),
    "delegation tokens (`spark.kafka.clusters.*`), Kerberos, JAAS files": (
        "work",
        "no effect",
        "they are parts of Java; use `kafka.sasl.*` with PLAIN, SCRAM or OAUTHBEARER",
    ),
    "`spark.kafka.consumer.cache.*`, `spark.kafka.producer.cache.*`": (
        "sizes of pools in the JVM",
        "no effect",
        "each Python worker keeps its clients as long as it runs",
    ),
    "`fetchOffset.*`, `groupIdPrefix`, `useDeprecatedOffsetFetching`": (
        "work",
        "accepted, no effect",
        "the clients retry within `kafka.request.timeout.ms`, and reading needs no group",
    ),
}
