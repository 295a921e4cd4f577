"""The member machines against the real coordinator, from seeds: crashes, pauses, lost responses, restarts, growth.

The invariants are those of `tests.simulation`: one owner in a generation, offsets never decrease, all members stable in
the end.
"""

from __future__ import annotations

import pytest
from tests.simulation import scenario as scenarios
from tests.simulation.scenario import CLASSIC, CONSUMER, Scenario
from tests.unit.consuming.simulated_members import SimulatedClassic, SimulatedConsumer, SimulatedCooperative

SEEDS = 8


@pytest.mark.parametrize("kind", [SimulatedClassic, SimulatedCooperative, SimulatedConsumer])
def test_the_machines_and_the_coordinator_understand_each_other(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    modern = CONSUMER if kind is SimulatedConsumer else CLASSIC
    monkeypatch.setattr(scenarios, "ConsumerMember" if modern else "ClassicMember", kind)
    for seed in range(SEEDS):
        scenario = Scenario(seed, modern)
        try:
            scenario.run()
        except Exception as error:
            story = "\n".join(list(scenario.world.trace)[-40:])
            raise AssertionError(f"seed {seed}: {error}\n{story}") from error
