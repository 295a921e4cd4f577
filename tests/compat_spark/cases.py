"""The register of cases. A case runs once per data source and returns what must be equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.compat_spark.world import World


@dataclass(frozen=True)
class Case:
    section: str
    name: str
    run: Callable[[World], Any]


CASES: list[Case] = []


def case(section: str, name: str) -> Callable[[Callable[[World], Any]], Callable[[World], Any]]:
    def register(run: Callable[[World], Any]) -> Callable[[World], Any]:
        CASES.append(Case(section, name, run))
        return run

    return register
