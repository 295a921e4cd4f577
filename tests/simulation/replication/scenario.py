"""A scenario from a seed: a cluster, clients and faults; then the faults stop, and everything must converge."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from tests.simulation.replication.applications import NOTHING_HANGS, Applications
from tests.simulation.replication.clients import Clients
from tests.simulation.replication.cluster import MIN_ISR, UNCLEAN, Cluster, Options, Weather
from tests.simulation.replication.coordinators import PARTITIONS, install
from tests.simulation.replication.faults import Faults, schedule
from tests.simulation.replication.invariants import LIVENESS, Violation

from ottla.metadata.machine import Metadata

#: The kinds of scenarios: plain records, the same with unclean elections, and coordinators with their applications.
RECORDS, UNCLEAN_ELECTIONS, COORDINATORS = KINDS = ("records", "unclean", "coordinators")
START, CHURN, SETTLE = 300, 15_000, 30_000
LOOK = 250


class Scenario:
    """One seed."""

    def __init__(self, seed: int, *, kind: str = RECORDS, keep: Collection[int] | None = None) -> None:
        """``keep`` are the numbers of the faults that happen; all of them if it is None."""
        random = Random(f"options {seed}")
        self.options = Options.choose(random, unclean=kind == UNCLEAN_ELECTIONS)
        self.faults = schedule(seed, 500, CHURN)
        self.coordinates = kind == COORDINATORS
        if self.coordinates:
            self.options.partitions = PARTITIONS
            self.faults = [fault for fault in self.faults if fault.kind != "delete_records"]
        if keep is not None:
            self.faults = [fault for fault in self.faults if fault.number in keep]
        self.cluster = Cluster(seed, self.options)
        self._weather = Weather(
            lost=random.choice([0, 0, 0.01, 0.05]),
            slow=random.choice([0, 0.01, 0.05]),
            slow_proposals=random.choice([0, 0, 0.5]),
            slow_fetches=random.choice([0, 0, 0.1]),
        )
        self._pause = random.choice([60, 120, 250])

    def run(self) -> None:
        """Run the scenario; raise Violation if an invariant does not hold."""
        cluster = self.cluster
        cluster.say(str(self.options))
        if self.coordinates:
            install(cluster)
        for host in cluster.hosts.values():
            cluster.start(host)
        cluster.run_until(START)
        while not self._create_topic():
            cluster.run_until(cluster.now + START)
        cluster.weather = self._weather
        cluster.run_until(cluster.now + START)
        clients = Clients(cluster, self._pause, reads_only=self.coordinates)
        applications = Applications(cluster) if self.coordinates else None
        faults = Faults(cluster, self.faults)
        cluster.run_until(cluster.now + CHURN)
        cluster.weather = Weather()
        faults.stop()
        if applications is not None:
            applications.stop()
        self._settle(clients, faults)
        if applications is not None:
            self._end(applications)

    def _create_topic(self) -> bool:
        """Create the topic as soon as every broker is there."""
        if len(self.cluster.truth.brokers) < len(self.cluster.hosts):
            return False
        options, random = self.options, self.cluster.random
        ids = list(self.cluster.hosts)
        assignments = [random.sample(ids, options.replication_factor) for _ in range(options.partitions)]
        configs = {MIN_ISR: str(options.min_isr), UNCLEAN: str(options.unclean).lower()}
        name, topic_id = self.cluster.topic, self.cluster.topic_id
        return self.cluster.administrate(
            Metadata.create_topic, name, topic_id, options.partitions, configs, assignments=assignments
        )

    def _settle(self, clients: Clients, faults: Faults) -> None:
        cluster = self.cluster
        self._until_settled(faults)
        clients.is_open = False
        cluster.run_until(cluster.now + 5_000)
        if clients.pending:
            raise Violation(LIVENESS, f"{clients.pending} writes have no answer")
        # A late suspicion may have changed something just now.
        self._until_settled(faults)
        cluster.invariants.check_images()

    def _until_settled(self, faults: Faults) -> None:
        cluster = self.cluster
        end = cluster.now + SETTLE
        problem: str | None = "nothing was checked"
        while problem is not None:
            if cluster.now >= end:
                raise Violation(LIVENESS, problem)
            cluster.run_until(cluster.now + LOOK)
            faults.revive()
            problem = cluster.invariants.unsettled()

    def _end(self, applications: Applications) -> None:
        """Let the applications come to an end, and look at what they have done."""
        cluster = self.cluster
        end = cluster.now + SETTLE
        while cluster.now < end and applications.unfinished():
            cluster.run_until(cluster.now + LOOK)
        if cluster.invariants.is_lossy:
            return
        if problem := applications.unfinished():
            raise Violation(NOTHING_HANGS, problem)
        applications.check()
