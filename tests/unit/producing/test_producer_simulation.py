"""Nothing lost, nothing twice, order kept, an outcome for every record in time, whatever happens to the cluster."""

from __future__ import annotations

import pytest
from simulated_cluster import DELIVERY_TIMEOUT, Simulation

from ottla.errors import InvalidRecord

SEEDS = range(30)


def load(simulation: Simulation, records: int, over: int) -> None:
    dice = simulation.dice
    for number in range(records):
        key = dice.choice(simulation.partitions)
        size = dice.randint(1, 60)
        value = f"{number}-".encode() + b"x" * size
        simulation.at(dice.randint(0, over), lambda key=key, value=value: simulation.send(key, value))


def run(simulation: Simulation, records: int = 120, over: int = 1_500) -> None:
    load(simulation, records, over)
    simulation.run(over + 4 * DELIVERY_TIMEOUT)
    assert len(simulation.outcomes) == records


@pytest.mark.parametrize("seed", SEEDS)
def test_a_calm_cluster_takes_everything_once_and_in_order(seed: int) -> None:
    simulation = Simulation(seed, trouble=0.0)
    run(simulation)
    assert not any(isinstance(outcome, Exception) for outcome in simulation.outcomes.values())
    simulation.check()
    for key in simulation.partitions:
        assert simulation.logs[key].values == simulation.sent[key]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("trouble", [0.03, 0.2])
def test_trouble_loses_nothing_and_doubles_nothing(seed: int, trouble: float) -> None:
    simulation = Simulation(seed, trouble=trouble)
    for when in range(200, 1_500, 300):
        simulation.at(when, simulation.move_leaders)
    simulation.at(600, lambda: simulation.take_down(simulation.dice.choice(simulation.nodes), 500))
    simulation.at(2_000, lambda: setattr(simulation, "trouble", 0.0))
    run(simulation)
    simulation.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_rejected_batches_leave_the_others_alone(seed: int) -> None:
    simulation = Simulation(seed, trouble=0.05, refusals=0.04)
    for when in range(200, 1_500, 300):
        simulation.at(when, simulation.move_leaders)
    simulation.at(2_000, lambda: setattr(simulation, "trouble", 0.0))
    run(simulation)
    simulation.check()
    refused = [outcome for outcome in simulation.outcomes.values() if isinstance(outcome, InvalidRecord)]
    failed = [outcome for outcome in simulation.outcomes.values() if isinstance(outcome, Exception)]
    assert len(refused) == len(failed)  # nothing waits behind a dropped batch


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_that_expire_leave_no_gap_that_others_fall_into(seed: int) -> None:
    """A long outage makes batches expire; what comes after it is written once and in order."""
    simulation = Simulation(seed, trouble=0.05)
    simulation.at(300, lambda: simulation.take_down(0, DELIVERY_TIMEOUT + 500))
    simulation.at(400, lambda: simulation.take_down(1, DELIVERY_TIMEOUT + 200))
    simulation.at(6_000, lambda: setattr(simulation, "trouble", 0.0))
    run(simulation, records=200, over=6_000)
    assert any(isinstance(outcome, Exception) for outcome in simulation.outcomes.values())
    assert any(not isinstance(outcome, Exception) for outcome in simulation.outcomes.values())
    simulation.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_one_in_flight_keeps_order_without_idempotence(seed: int) -> None:
    simulation = Simulation(seed, trouble=0.0, idempotent=False, in_flight=1)
    for when in range(200, 1_500, 300):
        simulation.at(when, simulation.move_leaders)
    run(simulation)
    simulation.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_that_are_too_large_are_split_in_order(seed: int) -> None:
    simulation = Simulation(seed, trouble=0.05, max_batch=70)
    simulation.at(2_000, lambda: setattr(simulation, "trouble", 0.0))
    run(simulation)
    simulation.check()


@pytest.mark.parametrize("seed", range(20))
def test_memory_is_given_in_order_and_comes_back(seed: int) -> None:
    simulation = Simulation(seed, trouble=0.05, buffer_memory=700)
    simulation.at(2_000, lambda: setattr(simulation, "trouble", 0.0))
    run(simulation, records=150, over=300)
    simulation.check(ordered=False)
