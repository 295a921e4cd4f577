"""The results of Kafka 4.2's assignors on generated groups, compared with ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.assignors import BY_NAME, StickyAssignor, Subscription
from ottla.assignors.sticky import encode_user_data
from unit.assignors.groups import given, moves, unevenness

HERE = Path(__file__).parent


def cases(name: str) -> list[Any]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_range_and_roundrobin_give_each_member_what_kafka_gives_it(assignor: str) -> None:
    seen = 0
    for case in cases("kafka_range_roundrobin.jsonl"):
        if case["assignor"] == assignor:
            subscriptions = {
                member: Subscription(told["topics"], group_instance_id=told.get("instance"))
                for member, told in case["members"].items()
            }
            assert given(BY_NAME[assignor]().assign(case["partitions"], subscriptions)) == case["kafka"]
            seen += 1
    assert seen == 60


def test_sticky_is_never_less_even_than_kafka_nor_moves_more() -> None:
    for case in cases("kafka_sticky.jsonl"):
        owned = {member: told["owned"] for member, told in case["members"].items()}
        subscriptions = {
            member: Subscription(told["topics"], user_data=encode_user_data(told["owned"], 3))
            for member, told in case["members"].items()
        }
        ours = given(StickyAssignor().assign(case["partitions"], subscriptions))
        kafka = case["kafka"]
        assert (unevenness(ours), moves(owned, ours)) <= (unevenness(kafka), moves(owned, kafka))
