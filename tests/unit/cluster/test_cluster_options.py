"""What ottla.Cluster rejects before it starts anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ottla import Cluster
from ottla.errors import ConfigError, OttlaError
from ottla.storage.data_dir import DataDir, DataDirInUse


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_partitons": 3}, "Did you mean num.partitions"),
        ({"config": {"num.partitions": "many"}}, "expected a whole number"),
        ({"config": {"zookeeper.connect": "a:1"}}, "zookeeper.connect is different for each broker"),
        ({"log_dirs": "/data"}, "the cluster sets it. Remove it"),
        ({"racks": ["a"]}, "there are 1 racks for 3 brokers"),
        ({"zookeeper": "zk1"}, "such as zk1:2181/ottla"),
    ],
)
def test_mistakes_are_told_where_they_are_made(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Cluster(3, **options)  # type: ignore[arg-type]


def test_the_number_of_brokers() -> None:
    with pytest.raises(ValueError, match="the number of brokers must be at least 1, not 0"):
        Cluster(0)


def test_a_cluster_that_is_not_running_says_so() -> None:
    cluster = Cluster()
    cluster.stop()
    for ask in (lambda: cluster.bootstrap_servers, lambda: cluster.zookeeper, cluster.controller, cluster.add_broker):
        with pytest.raises(OttlaError, match="the cluster is not running: start it with"):
            ask()
    with pytest.raises(OttlaError, match="there is no broker 1: the cluster has none"):
        cluster.broker(1)


def test_configs_of_kafka_without_an_effect_are_passed_on() -> None:
    cluster = Cluster(num_io_threads=8, config={"log.retention.ms": 5})
    assert cluster._values == {"num.io.threads": "8", "log.retention.ms": "5"}


def test_a_directory_is_of_one_cluster_at_a_time(tmp_path: Path) -> None:
    running = DataDir(tmp_path, user="cluster")
    running.hold()
    try:
        with pytest.raises(DataDirInUse, match=r"another cluster \(process \d+\) uses the data directory .*; stop it"):
            Cluster(3, tmp_path).start()
    finally:
        running.unlock()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_directory_of_a_single_broker_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    with pytest.raises(OttlaError, match="has the data of a single broker: use another data directory"):
        Cluster(3, tmp_path).start()
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_a_port_that_is_in_use_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        cluster = Cluster(1, tmp_path, port=port)
        with pytest.raises(OttlaError, match=rf"cannot listen on 127.0.0.1:{port}: .*; choose another port .*--listen"):
            cluster.start()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
