"""A table of the transitions that a state machine allows. The diagrams in the docs are made from such tables."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Enum)


class IllegalTransition(RuntimeError):
    """A transition that the table does not allow: a bug in the state machine."""


class Transition(NamedTuple, Generic[S]):
    source: S
    target: S
    when: str


class Transitions(Generic[S]):
    """The transitions of one kind of thing.

    >>> class Light(Enum):
    ...     RED = "red"
    ...     GREEN = "green"
    >>> light = Transitions("a light", [(Light.RED, Light.GREEN, "the road is free")])
    >>> light.allows(Light.RED, Light.GREEN), light.allows(Light.GREEN, Light.RED)
    (True, False)
    >>> light.check(Light.GREEN, Light.RED)
    Traceback (most recent call last):
    ottla.transitions.IllegalTransition: a light cannot go from green to red
    """

    def __init__(self, what: str, rows: list[tuple[S, S, str]]) -> None:
        self._what = what
        self._rows = [Transition(*row) for row in rows]
        self._allowed = frozenset((row.source, row.target) for row in self._rows)

    def __iter__(self) -> Iterator[Transition[S]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def allows(self, source: S, target: S) -> bool:
        return (source, target) in self._allowed

    def check(self, source: S, target: S) -> None:
        """Raise IllegalTransition if the table does not allow this transition."""
        if (source, target) not in self._allowed:
            raise IllegalTransition(f"{self._what} cannot go from {source.value} to {target.value}")

    def mermaid(self, first: S, last: S) -> str:
        """Return the table as a state diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {first.value}"]
        lines += [f"    {row.source.value} --> {row.target.value}: {row.when}" for row in self._rows]
        return "\n".join([*lines, f"    {last.value} --> [*]"])
