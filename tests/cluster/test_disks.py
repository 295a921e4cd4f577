"""A disk of one broker fails: others lead its partitions, and the broker stays in the cluster."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest
from tests.compat.waiting import until

import ottla
from ottla.cluster.cluster import Cluster
from ottla.errors import KafkaStorageError
from ottla.protocol.apis import ApiKey
from unit.broker.wire import Wire

VALUES = [b"%05d" % number * 200 for number in range(200)]
#: No file of the broken broker can grow beyond this: its log lines fit, its segments do not.
LIMIT = 64 * 1024


def is_out(admin: ottla.Admin, broker_id: int) -> bool:
    """Whether the broker does not lead the partition, and is not in sync."""
    partition = admin.describe_topics("orders")["orders"].partitions[0]
    leader = partition.leader
    return leader is not None and leader.id != broker_id and broker_id not in {node.id for node in partition.isr}


@pytest.mark.parametrize("role", ["leader", pytest.param("follower", marks=pytest.mark.long)])
def test_a_broker_with_a_failed_disk_leaves_its_partitions_to_others(role: str) -> None:
    with Cluster(3, isolation=False, offsets_topic_num_partitions=3) as cluster:
        servers = cluster.bootstrap_servers
        with ottla.Admin(bootstrap_servers=servers) as admin, ottla.Producer(bootstrap_servers=servers) as producer:
            admin.create_topics(ottla.NewTopic("orders", 1, 3))
            for value in VALUES[:20]:
                producer.send("orders", value)
            producer.flush(20)
            leader = cluster.leader_of("orders")
            broken = leader if role == "leader" else cluster.broker(leader.id % 3 + 1)
            # Writes beyond the limit fail, as on a full disk.
            resource.prlimit(broken.pid, resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
            for value in VALUES[20:]:
                producer.send("orders", value)
            producer.flush(20)
            until(lambda: is_out(admin, broken.id), "the broker is not in sync and leads nothing")
            # The broker is still there, and says what is wrong.
            assert broken.state == "running"
            assert broken.id in {node.id for node in admin.describe_cluster().nodes}
        with Wire(broken.address) as wire:
            dirs = wire.call(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
            assert [each.error_code for each in dirs] == [KafkaStorageError.code]
        with ottla.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([ottla.TopicPartition("orders", 0)])
            seen: list[bytes] = []
            deadline = time.monotonic() + 60
            while len(seen) < len(VALUES) and time.monotonic() < deadline:
                seen += [record.value for record in consumer.poll(1)]
            assert seen == VALUES
        # With a good disk it follows again after a restart.
        broken.restart()
        cluster.wait_until_replicated("orders")


def in_sync(admin: ottla.Admin, broker_id: int) -> set[int]:
    """The partitions in which a broker is in sync, if all of them have leaders."""
    partitions = admin.describe_topics("orders")["orders"].partitions
    assert all(each.leader is not None for each in partitions)
    return {each.partition for each in partitions if broker_id in {node.id for node in each.isr}}


@pytest.mark.parametrize("number", [pytest.param(0, id="first", marks=pytest.mark.long), pytest.param(1, id="second")])
@pytest.mark.timeout(180)
def test_a_broker_starts_without_a_disk_that_it_cannot_open(number: int, tmp_path: Path) -> None:
    with Cluster(3, tmp_path, isolation=False) as cluster:
        broker = cluster.broker(1)
        broker.stop()
        disks = [broker.data_dir, tmp_path / "other"]
        broker._config["log.dirs"] = ",".join(map(str, disks))
        broker.start()
        with ottla.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics(ottla.NewTopic("orders", 4, 3))
            cluster.wait_until_replicated("orders")
            # A new partition is in sync before every broker has its directory.
            until(lambda: len([*disks[0].glob("orders-*"), *disks[1].glob("orders-*")]) == 4, "all replicas are there")
            lost = {int(path.name.removeprefix("orders-")) for path in disks[number].glob("orders-*")}
            assert 0 < len(lost) < 4
            broker.stop()
            disks[number].rename(tmp_path / "pulled")
            disks[number].write_text("not a directory")
            broker.start()
            until(lambda: in_sync(admin, 1) == set(range(4)) - lost, "the replicas on the other disk are in sync", 60)
            with ottla.Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
                for partition in range(4):
                    producer.send("orders", b"1", partition=partition).get(20)
            # With the disk it follows again after a restart.
            broker.stop()
            disks[number].unlink()
            (tmp_path / "pulled").rename(disks[number])
            broker.start()
            until(lambda: in_sync(admin, 1) == set(range(4)), "all replicas are in sync", 60)
