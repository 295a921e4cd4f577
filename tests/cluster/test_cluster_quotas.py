"""Client quotas in a cluster: any broker takes them, all have them, and the controller's pause reaches the client."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.compat.waiting import until

from ottla import Admin, QuotaEntity, errors
from ottla.cluster.cluster import Cluster
from ottla.protocol.apis import ApiKey
from unit.broker.wire import Wire

GREEDY = QuotaEntity(client_id="greedy")


@pytest.fixture
def admins(cluster: Cluster) -> Iterator[dict[int, Admin]]:
    admins = {id_: Admin(bootstrap_servers=cluster.broker(id_).address) for id_ in cluster.brokers}
    yield admins
    admins[1].alter_quotas({GREEDY: {"controller_mutation_rate": None, "producer_byte_rate": None}})
    for admin in admins.values():
        admin.close()


def test_every_broker_has_the_quotas(admins: dict[int, Admin]) -> None:
    for id_, admin in admins.items():
        admin.alter_quotas({GREEDY: {"producer_byte_rate": 1_000 * id_}})
        for other in admins.values():
            wanted = {GREEDY: {"producer_byte_rate": 1_000 * id_}}
            until(lambda other=other, wanted=wanted: other.describe_quotas() == wanted, "the quota is there")


def test_the_pause_of_the_controller_reaches_the_client(cluster: Cluster, admins: dict[int, Admin]) -> None:
    admins[1].alter_quotas({GREEDY: {"controller_mutation_rate": 0.5}})
    controller = admins[1].describe_cluster().controller
    assert controller is not None
    others = [id_ for id_ in cluster.brokers if id_ != controller.id]
    entry = {"name": "bad/name", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    with Wire(cluster.broker(others[0]).address, client_id="greedy") as wire:

        def create(name: str, partitions: int) -> tuple[int, int]:
            topics = [entry | {"name": name, "num_partitions": partitions}]
            answer = wire.call(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "validate_only": True})
            return answer.topics[0].error_code, answer.throttle_time

        assert create("first", 6) == (0, 0)
        code, pause = create("second", 1)
        assert code == errors.ThrottlingQuotaExceeded.code
        assert 0 < pause <= 1_000
        begun = time.monotonic()
        # The connection between the brokers goes on meanwhile.
        with Wire(cluster.broker(others[0]).address) as other:
            topics = [entry | {"name": "third"}]
            answer = other.call(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "validate_only": True})
            assert (answer.topics[0].error_code, answer.throttle_time) == (0, 0)
        assert create("second", 1)[0] == 0
        assert time.monotonic() - begun >= 0.9 * pause / 1000
