"""What ottla.Cluster rejects before it starts anything."""

from __future__ import annotations

import pytest

from ottla import Cluster
from ottla.errors import ConfigError, OttlaError


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
