"""Faults from a seed. The schedule is made before the run, so that single faults can be left out of a failing one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NamedTuple

from tests.simulation.replication.cluster import MIN_ISR, Cluster, Host

from ottla import errors
from ottla.metadata.brokers import fence_broker
from ottla.metadata.machine import Metadata
from ottla.metadata.partitions import balance_leaders, elect_leaders
from ottla.metadata.reassignment import reassign
from ottla.metadata.values import NO_LEADER
from ottla.types import TopicPartition


class Fault(NamedTuple):
    """Something that happens at a time."""

    number: int
    at: int
    kind: str
    seed: int
    """For what the fault chooses itself."""


#: Their relative frequencies.
KINDS = {
    "kill": 6,
    "lose": 4,
    "stop": 3,
    "pause": 4,
    "isolate": 3,
    "cut": 3,
    "cut_from_zookeeper": 4,
    "depose": 2,
    "suspect": 2,
    "reassign": 4,
    "cancel": 1,
    "min_isr": 4,
    "elect": 2,
    "balance": 1,
    "delete_records": 1,
    "kill_all": 1,
}


def schedule(seed: int, start: int, end: int) -> list[Fault]:
    """Return the faults of a seed."""
    random = Random(f"faults {seed}")
    pause = random.choice([400, 800, 1_500])
    # A few kinds at a time lead deeper than all of them.
    kinds = random.sample(list(KINDS), random.choice([4, 6, 10, len(KINDS)]))
    weights = [KINDS[kind] for kind in kinds]
    faults: list[Fault] = []
    at = start + random.expovariate(1 / pause)
    while at < end:
        faults.append(Fault(len(faults), int(at), random.choices(kinds, weights)[0], random.randrange(2**32)))
        at += random.expovariate(1 / pause)
    return faults


class Faults:
    """Makes faults happen."""

    def __init__(self, cluster: Cluster, faults: list[Fault]) -> None:
        self.cluster = cluster
        for fault in faults:
            cluster.after(fault.at, partial(self._happen, fault))

    def _happen(self, fault: Fault) -> None:
        happen: Callable[[Random], None] = getattr(self, f"_{fault.kind}")
        happen(Random(fault.seed))

    def _during(self, random: Random, end: Callable[[], None], longest: int = 6_000) -> None:
        """End a fault after a while."""
        self.cluster.after(random.choice([50, 300, 1_000, 2_500, longest]), end)

    # ── who ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _victim(self, random: Random) -> Host | None:
        """Choose a running broker: often a leader or the controller."""
        hosts = [host for host in self.cluster.hosts.values() if host.is_up]
        if not hosts:
            return None
        important = [host for host in hosts if self._is_important(host)]
        return random.choice(important if important and random.random() < 0.6 else hosts)

    def _is_important(self, host: Host) -> bool:
        node = self.cluster.zookeeper.controller
        topic = self.cluster.truth.topics.get(self.cluster.topic)
        return (node is not None and node.data == host.broker_id) or (
            topic is not None and any(state.leader == host.broker_id for state in topic.states)
        )

    def _partition(self, random: Random) -> TopicPartition:
        return TopicPartition(self.cluster.topic, random.randrange(self.cluster.options.partitions))

    # ── brokers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _kill(self, random: Random) -> None:
        if host := self._victim(random):
            self._kill_host(random, host, loses=False)

    def _lose(self, random: Random) -> None:
        if host := self._victim(random):
            self._kill_host(random, host, loses=True)

    def _kill_all(self, random: Random) -> None:
        for host in self.cluster.hosts.values():
            self._kill_host(random, host, loses=False)

    def _kill_host(self, random: Random, host: Host, *, loses: bool) -> None:
        """Kill a broker if the promise of min.insync.replicas covers it."""
        is_suspect = loses or host.disk.life_epoch < 0
        breaks = partial(self.cluster.invariants.breaks_promise, suspected=host if is_suspect else None, loses=loses)
        if not self.cluster.options.unclean and any(map(breaks, host.disk.logs)):
            return
        broker = host.broker
        self.cluster.kill(host, loses=loses)
        self.cluster.after(random.choice([100, 500, 2_000, 6_000]), partial(self._start, host))
        if broker is not None and random.random() < 0.5:
            self.cluster.after(random.randrange(5, 50), partial(self._notice, host, broker.epoch))

    def _notice(self, host: Host, epoch: int) -> None:
        """Others see that the port refuses connections, and do not wait for the session."""
        zookeeper = self.cluster.zookeeper
        if host.is_up:
            return
        if zookeeper.controller is not None and zookeeper.controller.data == host.broker_id:
            zookeeper.depose(zookeeper.controller.czxid)
        self.cluster.administrate(fence_broker, host.broker_id, epoch, f"broker {host.broker_id} refuses connections")
        zookeeper.remove(host.broker_id, epoch)

    def _start(self, host: Host) -> None:
        self.cluster.start(host)

    def _stop(self, random: Random) -> None:
        host = self._victim(random)
        if host is None or host.broker is None or host.broker.is_stopping or host.broker.epoch < 0:
            return
        self.cluster.say(f"broker {host.broker_id} is asked to stop")
        pause = random.choice([100, 1_000, 5_000])

        def stopped() -> None:
            self.cluster.say(f"broker {host.broker_id} has stopped")
            self.cluster.invariants.host_changed()
            self.cluster.after(pause, partial(self._start, host))

        host.broker.do(partial(host.broker.stop, stopped))

    def _pause(self, random: Random) -> None:
        host = self._victim(random)
        if host is None or host.broker is None or host.broker.is_paused:
            return
        broker = host.broker
        self.cluster.say(f"broker {host.broker_id} is paused")
        broker.pause()

        def resume() -> None:
            if broker.is_alive and broker.is_paused:
                self.cluster.say(f"broker {host.broker_id} goes on")
                broker.resume()

        self._during(random, resume)

    # ── network ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _isolate(self, random: Random) -> None:
        """Cut a broker off from all others, and sometimes from ZooKeeper too."""
        host = self._victim(random)
        if host is None:
            return
        others = [each for each in self.cluster.hosts if each != host.broker_id]
        pairs = [(host.broker_id, each) for each in others] + [(each, host.broker_id) for each in others]
        self._cut_pairs(random, pairs)
        if random.random() < 0.5:
            self._cut_broker_from_zookeeper(random, host.broker_id)

    def _cut(self, random: Random) -> None:
        """Cut one connection, sometimes in one direction only."""
        one, other = random.sample(list(self.cluster.hosts), 2)
        self._cut_pairs(random, [(one, other)] if random.random() < 0.4 else [(one, other), (other, one)])

    def _cut_pairs(self, random: Random, pairs: list[tuple[int, int]]) -> None:
        self.cluster.say(f"cut: {pairs}")
        self.cluster.cuts.update(pairs)

        def heal() -> None:
            self.cluster.say(f"healed: {pairs}")
            self.cluster.cuts.difference_update(pairs)

        self._during(random, heal)

    def _cut_from_zookeeper(self, random: Random) -> None:
        if host := self._victim(random):
            self._cut_broker_from_zookeeper(random, host.broker_id)

    def _cut_broker_from_zookeeper(self, random: Random, broker_id: int) -> None:
        self.cluster.say(f"broker {broker_id} is cut from ZooKeeper")
        self.cluster.cut_from_zookeeper.add(broker_id)
        self.cluster.contact_changed(broker_id)
        self._during(random, partial(self._heal_zookeeper, broker_id))

    def _heal_zookeeper(self, broker_id: int) -> None:
        if broker_id in self.cluster.cut_from_zookeeper:
            self.cluster.say(f"broker {broker_id} reaches ZooKeeper again")
            self.cluster.cut_from_zookeeper.discard(broker_id)
            self.cluster.contact_changed(broker_id)

    # ── the controller ────────────────────────────────────────────────────────────────────────────────────────────

    def _depose(self, random: Random) -> None:
        """Delete the controller's node although it lives."""
        zookeeper = self.cluster.zookeeper
        if zookeeper.controller is not None:
            self.cluster.say(f"the controller {zookeeper.controller.data} is deposed")
            zookeeper.depose(zookeeper.controller.czxid)

    def _suspect(self, random: Random) -> None:
        """Fence a broker that lives."""
        host = self._victim(random)
        if host is not None and (known := self.cluster.truth.brokers.get(host.broker_id)) is not None:
            reason = f"broker {host.broker_id} was suspected"
            self.cluster.administrate(fence_broker, host.broker_id, known.epoch, reason)
            self.cluster.zookeeper.remove(host.broker_id, known.epoch)

    def _reassign(self, random: Random) -> None:
        count = min(random.choice([1, 2, 3, 3, self.cluster.options.replication_factor]), len(self.cluster.hosts))
        target = random.sample(list(self.cluster.hosts), count)
        self.cluster.administrate(self._move, self._partition(random), target)

    def _move(self, metadata: Metadata, partition: TopicPartition, target: list[int], *, now: int) -> Any:
        """Reassign, unless that breaks a promise: fewer replicas promise less, but only from now on."""
        self._check_promise(partition.partition, len(target))
        return reassign(metadata, {partition: target}, now=now)

    def _check_promise(self, index: int, minimum: int) -> None:
        """Raise an error if a new minimum would break the promise for a machine that has lost data already."""
        is_lost = any(index in host.lost for host in self.cluster.hosts.values())
        if is_lost and minimum < self.cluster.invariants.promised[index]:
            raise errors.InvalidConfig

    def _cancel(self, random: Random) -> None:
        self.cluster.administrate(reassign, {self._partition(random): None})

    def _min_isr(self, random: Random) -> None:
        self.cluster.administrate(self._configure, random.randint(1, self.cluster.options.replication_factor))

    def _configure(self, metadata: Metadata, minimum: int, *, now: int) -> Any:
        for index in range(self.cluster.options.partitions):
            self._check_promise(index, minimum)
        configs = {**metadata.topic(self.cluster.topic).configs, MIN_ISR: str(minimum)}
        return metadata.set_topic_configs(self.cluster.topic, configs, now=now)

    def _elect(self, random: Random) -> None:
        self.cluster.administrate(elect_leaders, [self._partition(random)], unclean=False)

    def _balance(self, random: Random) -> None:
        self.cluster.administrate(balance_leaders, 0)

    def _delete_records(self, random: Random) -> None:
        """Delete committed records at a leader."""
        index = self._partition(random).partition
        topic = self.cluster.truth.topics.get(self.cluster.topic)
        leader = NO_LEADER if topic is None else topic.states[index].leader
        broker = None if leader == NO_LEADER else self.cluster.hosts[leader].broker
        replica = None if broker is None or not broker.is_alive else broker.replicas.get(index)
        if replica is not None:
            replica.delete_records(replica.high_watermark - random.choice([0, 0, 1, 5]))

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self) -> None:
        """Heal everything and start every broker."""
        cluster = self.cluster
        cluster.say("the faults stop")
        cluster.cuts.clear()
        for broker_id in list(cluster.cut_from_zookeeper):
            self._heal_zookeeper(broker_id)
        for host in cluster.hosts.values():
            if host.broker is not None and host.broker.is_alive and host.broker.is_paused:
                host.broker.resume()
        self.revive()

    def revive(self) -> None:
        """Start the brokers that do not run."""
        for host in self.cluster.hosts.values():
            self.cluster.start(host)
