"""A disk of one broker fails: others lead its partitions, and the broker stays in the cluster."""

from __future__ import annotations

import resource
import time

import ottla
from ottla.cluster.cluster import Cluster
from ottla.errors import KafkaStorageError
from ottla.protocol.apis import ApiKey
from unit.broker.wire import Wire

VALUES = [b"%05d" % number * 200 for number in range(200)]
#: No file of the broken broker can grow beyond this: its log lines fit, its segments do not.
LIMIT = 64 * 1024


def test_partitions_of_a_failed_disk_get_another_leader() -> None:
    with Cluster(3, isolation=False, offsets_topic_num_partitions=3) as cluster:
        servers = cluster.bootstrap_servers
        with ottla.Admin(bootstrap_servers=servers) as admin, ottla.Producer(bootstrap_servers=servers) as producer:
            admin.create_topics(ottla.NewTopic("orders", 1, 3))
            for value in VALUES[:20]:
                producer.send("orders", value)
            producer.flush(20)
            before = cluster.leader_of("orders")
            # Writes beyond the limit fail, as on a full disk.
            resource.prlimit(before.pid, resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
            for value in VALUES[20:]:
                producer.send("orders", value)
            producer.flush(20)
            assert cluster.leader_of("orders") != before
            described = admin.describe_topics("orders")["orders"].partitions[0]
            assert before.id not in {node.id for node in described.isr}
            # The broker is still there, and says what is wrong.
            assert before.state == "running"
            assert before.id in {node.id for node in admin.describe_cluster().nodes}
        with Wire(before.address) as wire:
            dirs = wire.call(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
            assert [each.error_code for each in dirs] == [KafkaStorageError.code]
        with ottla.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([ottla.TopicPartition("orders", 0)])
            seen: list[bytes] = []
            deadline = time.monotonic() + 20
            while len(seen) < len(VALUES) and time.monotonic() < deadline:
                seen += [record.value for record in consumer.poll(1)]
            assert seen == VALUES
        # With a good disk it follows again after a restart.
        before.restart()
        cluster.wait_until_replicated("orders")
