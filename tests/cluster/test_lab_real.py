"""``ottla lab --real``: ten real processes, a real broker or ZooKeeper, and the figures of the simulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.lab.runs import DESIGNS

pytestmark = pytest.mark.long

SCENARIO = """
settle = 20
event = [
  { at = 1, action = "start", member = 10 },
  { at = 9, action = "leave", member = 2 },
  { at = 16, action = "crash", member = 4 },
]
"""
#: Requests may differ by so much. kazoo sends more pings than the model, and connects for each session.
TOLERANCE = {"watchers": 0.15, "server": 0.25}
MOVES = 2
"""So many moves may differ: when a heartbeat comes decides whether two changes are one rebalance."""


@pytest.mark.parametrize("design", DESIGNS)
def test_ten_members_match_the_simulation(design: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "churn.toml"
    file.write_text(SCENARIO)
    assert main(["lab", str(file), "--real", "--design", design, "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)
    real, simulated = pair["real"], pair["simulated"]
    assert real["requests"] == pytest.approx(simulated["requests"], rel=TOLERANCE.get(design, 0.1))
    assert abs(real["moved"] - simulated["moved"]) <= MOVES
    assert abs(real["notifications"] - simulated["notifications"]) <= 5
    assert real["stable_after_ms"] is not None, "all partitions are read at the end"
