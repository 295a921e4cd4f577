"""Faults of a cluster: what happens to which broker, and how it ends. A fault leaves everything running again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeAlias

import ottla
from ottla.cluster.cluster import Cluster
from ottla.cluster.member import ClusterBroker

Act: TypeAlias = "Callable[[Faults, ClusterBroker], None]"
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
ROLES = ("leader", "follower", "controller", "group coordinator", "transaction coordinator")


class Faults:
    """Lets a cluster suffer, by chance from a seed."""

    def __init__(self, cluster: Cluster, chance: random.Random, topic: str = "") -> None:
        self.cluster = cluster
        self.chance = chance
        self.topic = topic

    def victim(self, role: str) -> ClusterBroker:
        """Return a broker that has a role now."""
        match role:
            case "controller":
                return self.cluster.controller(timeout=30)
            case "follower":
                leader = self._leader(self.topic)
                return self.chance.choice([each for each in self.cluster.brokers.values() if each is not leader])
            case "group coordinator":
                return self._leader(OFFSETS)
            case "transaction coordinator":
                return self._leader(TRANSACTIONS)
        return self._leader(self.topic)

    def _leader(self, topic: str) -> ClusterBroker:
        with ottla.Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            partitions = len(admin.describe_topics(topic)[topic].partitions)
        return self.cluster.leader_of(topic, self.chance.randrange(partitions), timeout=30)

    def wait(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def kill(self, broker: ClusterBroker) -> None:
        broker.kill()
        self.wait(0, 2)
        broker.start()

    def stop(self, broker: ClusterBroker) -> None:
        broker.stop()
        self.wait(0, 1)
        broker.start()

    def bounce(self, broker: ClusterBroker) -> None:
        """Kill or stop it again and again, without waiting until it has caught up."""
        for _ in range(3):
            broker.kill() if self.chance.random() < 0.5 else broker.stop()
            broker.start()
            self.wait(0, 0.3)

    def roll(self, broker: ClusterBroker) -> None:
        """Restart all brokers one after the other, as for an upgrade."""
        for each in [broker, *(other for other in self.cluster.brokers.values() if other is not broker)]:
            each.restart()
            self.cluster.wait_until_replicated(timeout=60)

    def kill_two(self, broker: ClusterBroker) -> None:
        other = self.chance.choice([each for each in self.cluster.brokers.values() if each is not broker])
        broker.kill()
        self.wait(0, 0.5)
        other.kill()
        self.wait(0, 1)
        for each in self._shuffled([broker, other]):
            each.start()

    def kill_all(self, broker: ClusterBroker) -> None:
        for each in self._shuffled(list(self.cluster.brokers.values())):
            each.kill()
        self._start_all()

    def pause(self, broker: ClusterBroker) -> None:
        """Freeze it: for a moment, or for longer than its session with ZooKeeper lives."""
        broker.pause()
        self.wait(0.2, 5)
        broker.resume()

    def isolate(self, broker: ClusterBroker) -> None:
        broker.isolate()
        self.wait(0.5, 6)
        broker.rejoin()

    def isolate_from_brokers(self, broker: ClusterBroker) -> None:
        """Clients still reach it: a leader that nobody follows any more."""
        broker.isolate(clients=False)
        self.wait(0.5, 6)
        broker.rejoin()

    def kill_isolated(self, broker: ClusterBroker) -> None:
        """It dies while it is cut off, so nobody hears of it for a while."""
        broker.isolate()
        self.wait(0.1, 3)
        broker.kill()
        broker.rejoin()
        broker.start()

    def kill_zookeeper(self, broker: ClusterBroker) -> None:
        self.cluster.zookeeper.kill()
        self.wait(0, 5)
        self.cluster.zookeeper.start()

    def pause_zookeeper(self, broker: ClusterBroker) -> None:
        self.cluster.zookeeper.pause()
        self.wait(0.5, 6)
        self.cluster.zookeeper.resume()

    def kill_with_zookeeper(self, broker: ClusterBroker) -> None:
        """A broker dies while no decision can be made."""
        self.cluster.zookeeper.kill()
        self.wait(0, 1)
        broker.kill()
        self.wait(0, 1)
        self.cluster.zookeeper.start()
        broker.start()

    def _start_all(self) -> None:
        for each in self._shuffled(list(self.cluster.brokers.values())):
            each.launch()
            self.wait(0, 0.5)
        for each in self.cluster.brokers.values():
            each.await_ready()

    def _shuffled(self, brokers: list[ClusterBroker]) -> list[ClusterBroker]:
        return self.chance.sample(brokers, len(brokers))


FAULTS: dict[str, Act] = {
    "kill": Faults.kill,
    "stop": Faults.stop,
    "bounce": Faults.bounce,
    "pause": Faults.pause,
    "isolate": Faults.isolate,
    "isolate from brokers": Faults.isolate_from_brokers,
    "kill isolated": Faults.kill_isolated,
    "kill zookeeper": Faults.kill_zookeeper,
    "pause zookeeper": Faults.pause_zookeeper,
    "kill with zookeeper": Faults.kill_with_zookeeper,
    "kill two": Faults.kill_two,
    "kill all": Faults.kill_all,
    "roll": Faults.roll,
}
#: Most rounds have a plain fault.
OFTEN = ("kill", "kill", "pause", "isolate", "isolate from brokers", "stop")
