"""Methods that other clients have and ottla's do not: the error says what to write.

    producer.produce("orders", b"x")  # AttributeError: Producer has no method 'produce': write send(topic, value, …)

Add a method to a table here. `ottla.consuming.values` has the table of the result of a poll. docs/migration.md has the
complete tables.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping

from ottla.types import Millis

_LISTING = "write list_topics() or describe_topics(names) of an Admin"

PRODUCER = {
    "produce": "write send(topic, value, key, callback=f), where f takes (metadata, error)",
    "poll": "leave it out, callbacks run without it",
    "send_and_wait": "write send(…).get()",
    "list_topics": _LISTING,
    "purge": "write close(timeout=0)",
    "partitions_for_topic": "write partitions_for(topic)",
    "bootstrap_connected": "leave it out, the first send connects",
    "create_batch": "write send_arrow(topic, table) for many records at once",
    "stop": "write close()",
    "start": "leave it out",
}

CONSUMER = {
    "consume": "write poll(1.0, max_records=100), where 1.0 is in seconds",
    "getone": "iterate over the consumer, or write poll(max_records=1), which may return nothing",
    "getmany": "write poll(timeout_ms=1000), whose result has by_partition()",
    "store_offsets": "set enable.auto.commit=false and write commit({partition: record.offset + 1}) after processing",
    "get_watermark_offsets": "write beginning_offsets([partition]) and end_offsets([partition])",
    "consumer_group_metadata": "write group_metadata()",
    "partitions_for_topic": "write partitions_for(topic)",
    "topics": "write list_topics()",
    "highwater": "write end_offsets([partition])",
    "incremental_assign": "leave it out, cooperative rebalances need no call",
    "incremental_unassign": "leave it out, cooperative rebalances need no call",
    "seek_to_committed": "write seek(partition, offset) with the offset of committed([partition])",
    "last_stable_offset": "write end_offsets([partition]) of a consumer with isolation_level='read_committed'",
    "stop": "write close()",
    "start": "leave it out",
}

ADMIN = {
    "list_consumer_groups": "write list_groups()",
    "describe_consumer_groups": "write describe_groups(names)",
    "delete_consumer_groups": "write delete_groups(names)",
    "list_consumer_group_offsets": "write list_group_offsets(group)",
    "alter_consumer_group_offsets": "write alter_group_offsets(group, offsets)",
    "delete_consumer_group_offsets": "write delete_group_offsets(group, partitions)",
    "describe_user_scram_credentials": "write describe_users(names)",
    "alter_user_scram_credentials": "write alter_users(…)",
    "describe_client_quotas": "write describe_quotas(…)",
    "alter_client_quotas": "write alter_quotas(…)",
    "perform_leader_election": "write elect_leaders(…)",
}

#: confluent-kafka's `subscribe` has a parameter for each method of our listener.
ON_REBALANCE = {"on_assign": "assigned", "on_revoke": "revoked", "on_lost": "lost"}
#: Parameters of confluent-kafka's `commit`.
COMMIT = {
    "asynchronous": "commit() waits until it is done, and commit_async() does not wait",
    "message": "write commit({TopicPartition(message.topic, message.partition): message.offset + 1})",
}

_TEN_YEARS = 3650 * 86_400.0


def refuse_callbacks(given: Mapping[str, object]) -> None:
    """Refuse keywords of `subscribe` that it does not have."""
    for name in given:
        if method := ON_REBALANCE.get(name):
            raise TypeError(
                f"subscribe has no {name}: write listener=Mine(), where Mine is a subclass of ottla.RebalanceListener "
                f"with a method on_partitions_{method}(self, partitions)"
            )
        raise TypeError(f"subscribe has no parameter {name!r}, only topics, pattern and listener")


def refuse_of_commit(given: Mapping[str, object]) -> None:
    """Refuse keywords of `commit` that it does not have."""
    for name in given:
        if instead := COMMIT.get(name):
            raise TypeError(f"commit has no {name}: {instead}")
        raise TypeError(f"commit has no parameter {name!r}, only offsets and timeout")


def is_in_seconds(at: Millis) -> bool:
    """Whether a timestamp is the time of about now in seconds: as milliseconds it is in January 1970."""
    return abs(at - time.time()) < _TEN_YEARS


def warn_of_seconds(advice: str, *, stacklevel: int) -> None:
    """Warn of a timestamp in seconds. Nothing is refused, because January 1970 may be meant."""
    warnings.warn(
        f"a timestamp is in January 1970, because timestamps are in milliseconds: {advice}. Retention deletes old "
        "records.",
        stacklevel=stacklevel,
    )
