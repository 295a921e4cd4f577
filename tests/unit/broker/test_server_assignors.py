"""`group.consumer.assignors`: names, Kafka's class names, custom classes and invalid values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import ottla
from ottla.assignors import Assignment, Assignor, Subscription
from ottla.config import BrokerConfig
from ottla.config.describe import describe_broker
from ottla.errors import ConfigError
from ottla.runtime.assignors import server_assignors


class FirstTakesAll(Assignor):
    name = "first-takes-all"

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        first = min(subscriptions)
        return {first: Assignment({topic: range(count) for topic, count in partitions_per_topic.items()})}


class NeedsArguments(FirstTakesAll):
    def __init__(self, size: int) -> None:
        self.size = size


HERE = f"{__name__}.FirstTakesAll"


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["uniform", "range"], ["uniform", "range"]),
        (["org.apache.kafka.coordinator.group.assignor.RangeAssignor", "sticky"], ["range", "sticky"]),
        ([HERE, "uniform"], ["first-takes-all", "uniform"]),
        ([HERE.replace(".FirstTakesAll", ":FirstTakesAll")], ["first-takes-all"]),
        ([FirstTakesAll], ["first-takes-all"]),
        ([NeedsArguments(3)], ["first-takes-all"]),
    ],
)
def test_names_paths_classes_and_instances_are_taken(values: list[Any], names: list[str]) -> None:
    assert [assignor.name for assignor in server_assignors(values)] == names


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["magic"], r"there is no assignor 'magic'\. Built in are range, roundrobin, sticky, uniform"),
        (["cooperative-sticky"], "there is no assignor 'cooperative-sticky'"),
        (["no.such.Assignor"], r"no\.such cannot be imported \(ModuleNotFoundError"),
        ([f"{__name__}.Missing"], "has no attribute Missing"),
        (["collections.OrderedDict"], r"'collections.OrderedDict' is not an assignor\. Give a subclass of"),
        ([NeedsArguments], r"NeedsArguments\(\) failed"),
        ([FirstTakesAll, HERE], "several assignors have the name first-takes-all"),
    ],
)
def test_what_is_no_assignor_is_told_when_the_broker_is_made(values: list[Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ottla.Broker(group_consumer_assignors=values)


def test_describe_configs_shows_where_a_class_is() -> None:
    config = BrokerConfig.parse({"group.consumer.assignors": [FirstTakesAll, "range"]})
    (entry,) = describe_broker(config, names=["group.consumer.assignors"])
    assert entry.value == f"{HERE},range"
