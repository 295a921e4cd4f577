"""``cluster.faults``: those of `Broker.faults`, in all brokers, and leaders that move."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from ottla.broker.faults.face import BrokerGone, Faults, Target
from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.values import TopicDescription
from ottla.errors import OttlaError, UnknownTopicOrPartition
from ottla.types import TopicPartition

_SECONDS = 30.0
_KNOWN_SECONDS = 3.0
_POLL_SECONDS = 0.02


def http_target(address: str) -> Target:
    """Return a function that runs operations in the broker whose ``ottla.faults.listener`` has this address."""
    opener = build_opener(ProxyHandler({}))

    def run(operation: str, values: Mapping[str, Any]) -> Any:
        request = Request(f"http://{address}/run/{operation}", json.dumps(dict(values)).encode(), method="POST")
        try:
            with opener.open(request, timeout=_SECONDS) as answer:
                return json.load(answer)["result"]
        except HTTPError as error:
            with error:
                raise OttlaError(json.load(error)["error"]) from None
        except OSError as error:
            reason = error.reason if isinstance(error, URLError) else error
            kind = BrokerGone if isinstance(reason, ConnectionRefusedError) else OttlaError
            raise kind(f"the broker does not take orders for faults at {address}: {reason}") from None

    return run


class ClusterFaults(Faults):
    """Faults in all brokers of a cluster that run now. ``times`` counts in each of them.

    ``cluster.broker(2).faults`` has those of one broker.
    """

    def __init__(self, targets: Callable[[], Sequence[Target]], servers: Callable[[], str]) -> None:
        super().__init__(targets)
        self._servers = servers

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Move the leader of a partition to another replica, and return the id of the new leader.

        Without ``to`` it is the next replica that is in sync.
        """
        key = TopicPartition(topic, partition)
        with Admin(bootstrap_servers=self._servers()) as admin:
            replicas, leader, in_sync = _state(admin, key)
            others = [each for each in replicas if each != leader and each in in_sync]
            if to is None and not others:
                raise OttlaError(f"{key} has no other replica in sync that could lead")
            target = others[0] if to is None else to
            if target == leader:
                return target
            if target not in replicas:
                raise OttlaError(f"broker {target} has no replica of {key}: it is on {', '.join(map(str, replicas))}")
            order = [target, *(each for each in replicas if each != target)]
            admin.alter_partition_reassignments({key: order})
            deadline = time.monotonic() + _SECONDS
            while _state(admin, key)[1] != target:
                if time.monotonic() > deadline:
                    raise OttlaError(f"broker {target} did not become the leader of {key} within {_SECONDS:g} s")
                admin.elect_leaders("preferred", [key], raise_errors=False)
                time.sleep(_POLL_SECONDS)
        return target


def _known(admin: Admin, topic: str) -> TopicDescription:
    """Describe a topic. One that was just created may be unknown to some brokers for a moment."""
    deadline = time.monotonic() + _KNOWN_SECONDS
    while True:
        try:
            return admin.describe_topics(topic)[topic]
        except UnknownTopicOrPartition:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def _state(admin: Admin, key: TopicPartition) -> tuple[list[int], int | None, set[int]]:
    found = {one.partition: one for one in _known(admin, key.topic).partitions}
    if key.partition not in found:
        raise OttlaError(f"topic {key.topic} has no partition {key.partition}: it has 0 to {len(found) - 1}")
    one = found[key.partition]
    leader = None if one.leader is None else one.leader.id
    return [node.id for node in one.replicas], leader, {node.id for node in one.isr}
