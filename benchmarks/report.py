"""Report measurements as a table and as JSON.

A `Measure` has the repetitions of each peer, how they are summarised, and the target for ottla / Kafka. The benchmarks
define their own targets.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

OTTLA, KAFKA = "ottla", "kafka"
QUIET_CORES = 0.3  # dirty page writeback and the idle peer stay below this


@dataclass(frozen=True)
class Target:
    """`ratio` is the highest ("<=") or lowest (">=") allowed value of ottla / Kafka."""

    relation: str
    ratio: float

    def reached_by(self, ratio: float) -> bool:
        return ratio <= self.ratio if self.relation == "<=" else ratio >= self.ratio

    def __str__(self) -> str:
        return f"{'≤' if self.relation == '<=' else '≥'} {self.ratio:.2f}"


THROUGHPUT = Target(">=", 1.0)
CPU = Target("<=", 0.5)
LATENCY_P99 = Target("<=", 0.5)
START = Target("<=", 0.1)
MEMORY = Target("<=", round(1 / 6, 4))


@dataclass
class Measure:
    section: str
    name: str
    unit: str
    target: Target | None = None
    summary: Callable[[list[float]], float] = statistics.median
    values: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    void: bool = False  # the peers had different loads and cannot be compared

    def add(self, peer: str, value: float) -> None:
        self.values.setdefault(peer, []).append(value)

    def of(self, peer: str) -> float | None:
        return self.summary(self.values[peer]) if self.values.get(peer) else None

    @property
    def ratio(self) -> float | None:
        ours, theirs = self.of(OTTLA), self.of(KAFKA)
        return ours / theirs if ours is not None and theirs and not self.void else None

    @property
    def verdict(self) -> str:
        if self.target is not None and self.void:
            return "VOID"
        if self.target is None or self.ratio is None:
            return ""
        return "reached" if self.target.reached_by(self.ratio) else "MISSED"

    def as_json(self) -> dict[str, Any]:
        peers = {
            peer: {"value": self.of(peer), "repetitions": values} for peer, values in self.values.items() if values
        }
        target = {"target": f"{self.target.relation} {self.target.ratio}"} if self.target else {}
        head = {"section": self.section, "name": self.name, "unit": self.unit}
        return {**head, **peers, "ratio": self.ratio, **target, "verdict": self.verdict, "notes": self.notes}


class Report:
    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = {"started": datetime.now(UTC).isoformat(timespec="seconds"), **machine(), **about}
        self.measures: list[Measure] = []
        self.other_cores: list[float] = []  # CPU use of the rest of the machine, by round

    def heading(self) -> str:
        about = self.about
        clients = f"librdkafka {about['librdkafka']}, Apache Kafka {about['kafka']}, Python {about['python']}"
        return f"{about['cpus']} x {about['cpu_model']}, {about['memory_gb']} GB, {about['system']}; {clients}"

    def measure(
        self,
        section: str,
        name: str,
        unit: str,
        target: Target | None = None,
        summary: Callable[[list[float]], float] = statistics.median,
    ) -> Measure:
        """Return the measure with this name. Create it if it is missing."""
        for known in self.measures:
            if (known.section, known.name) == (section, name):
                return known
        self.measures.append(Measure(section, name, unit, target, summary))
        return self.measures[-1]

    def table(self) -> str:
        lines = [_header()]
        for section in dict.fromkeys(measure.section for measure in self.measures):
            lines += ["", section]
            lines += [_row(measure) for measure in self.measures if measure.section == section]
        return "\n".join([*lines, "", self._noise() + self._conclusion()])

    def _noise(self) -> str:
        """Return a warning if something else was running."""
        if not self.other_cores or statistics.median(self.other_cores) < QUIET_CORES:
            return ""
        usual, most = statistics.median(self.other_cores), max(self.other_cores)
        used = f"Other processes used {usual:.1f} cores during the run, {most:.1f} at most"
        return f"NOT A QUIET MACHINE. {used}: run this again when it is.\n"

    def _conclusion(self) -> str:
        verdicts = [measure.verdict for measure in self.measures if measure.verdict]
        if not verdicts:
            return "No ratios: only one broker was measured."
        reached = verdicts.count("reached")
        return f"{reached} of {len(verdicts)} targets reached. Ratios are ottla / Kafka, of medians."

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        whole = {
            **self.about,
            "other_cores": self.other_cores,
            "measures": [measure.as_json() for measure in self.measures],
        }
        path.write_text(json.dumps(whole, indent=1) + "\n")
        return path


def machine() -> dict[str, Any]:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": os.cpu_count(),
        "cpu_model": model[0].partition(":")[2].strip() if model else platform.machine(),
        "memory_gb": round(memory / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _header() -> str:
    return f"{'':34}{'ottla':>12}{'Kafka':>12}  {'':10}{'ratio':>6}  {'target':8}{'':9}"


def _row(measure: Measure) -> str:
    numbers = [_number(measure.of(peer)) for peer in (OTTLA, KAFKA)]
    ratio = f"{measure.ratio:.2f}" if measure.ratio is not None else "-"
    target = str(measure.target) if measure.target else ""
    notes = "; ".join(f"{_NAMES[peer]}: {note}" for peer, note in measure.notes.items())
    left = f"  {measure.name:32}{numbers[0]:>12}{numbers[1]:>12}  {measure.unit:10}"
    return f"{left}{ratio:>6}  {target:8}{measure.verdict:9}{notes}".rstrip()


_NAMES = {OTTLA: "ottla", KAFKA: "Kafka"}


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"
