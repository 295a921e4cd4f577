"""What the rounds of pipelines.py have hit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .pipeline_sinks import tables_of


@dataclass
class Round:
    """The result of one round."""

    fault: str
    sink: str
    """The kind of sink that the fault was for; empty: all."""
    how: str
    replayed: int
    finished: int
    code: int | None
    seconds: float
    states: Mapping[str, str]
    """The tables whose batch was "writing" or "written", and not finished, when something was killed."""

    def hit(self, kind: str, state: str) -> bool:
        """Whether one of the tables of a kind was in this state."""
        return any(self.states.get(table) == state for table in tables_of(kind))


def tell(rounds: Sequence[Round], replayed_at_the_end: int, leftovers: Mapping[str, int], kinds: Sequence[str]) -> None:
    """The faults and how often they hit, and the same for each kind of sink."""
    after = [one.replayed for one in rounds[1:]] + [replayed_at_the_end]
    by_fault: dict[str, list[int]] = {}
    for number, one in enumerate(rounds):
        by_fault.setdefault(one.fault, []).append(number)
    print(f"\n{'fault':38}{'rounds':>7}{'batches replayed after it':>27}{'batches finished':>18}")
    for name, numbers in by_fault.items():
        replayed, finished = sum(after[one] for one in numbers), sum(rounds[one].finished for one in numbers)
        print(f"{name:38}{len(numbers):7}{replayed:27}{finished:18}")
    if kinds:
        print(f"\n{'killed inside':16}{'rounds':>7}{'at its points':>15}{'while it wrote':>16}{'after it wrote':>16}")
    for kind in kinds:
        own = sum(one.sink == kind for one in rounds)
        writing, written = (sum(one.hit(kind, state) for one in rounds) for state in ("writing", "written"))
        inside = sum(one.hit(kind, "writing") or one.hit(kind, "written") for one in rounds)
        print(f"{kind:16}{inside:7}{own:15}{writing:16}{written:16}")
    for name, count in leftovers.items():
        print(f"left over {count} times after a round: {name}")
