from __future__ import annotations

from enum import StrEnum

import pytest

from ottla.transitions import IllegalTransition, Transitions


class Door(StrEnum):
    OPEN = "Open"
    SHUT = "Shut"
    LOCKED = "Locked"


DOOR = Transitions("a door", [(Door.OPEN, Door.SHUT, "pushed"), (Door.SHUT, Door.LOCKED, "the key turns")])


def test_only_the_transitions_of_the_table_are_allowed() -> None:
    assert [(row.source, row.target) for row in DOOR] == [(Door.OPEN, Door.SHUT), (Door.SHUT, Door.LOCKED)]
    assert len(DOOR) == 2
    assert DOOR.allows(Door.OPEN, Door.SHUT)
    assert not DOOR.allows(Door.SHUT, Door.OPEN)
    DOOR.check(Door.OPEN, Door.SHUT)
    with pytest.raises(IllegalTransition, match="a door cannot go from Open to Locked"):
        DOOR.check(Door.OPEN, Door.LOCKED)


def test_the_diagram_has_every_transition() -> None:
    assert DOOR.mermaid(Door.OPEN, Door.LOCKED).splitlines() == [
        "stateDiagram-v2",
        "    [*] --> Open",
        "    Open --> Shut: pushed",
        "    Shut --> Locked: the key turns",
        "    Locked --> [*]",
    ]
