"""Regular expressions of consumer subscriptions: RE2's syntax, matched against whole topic names in linear time.

Python's ``re`` would do neither: it goes back on its steps, so that one expression can hold up the broker for hours,
and it knows things that RE2 does not. The parser here gives a small program, which is run as a finite automaton
whose states are made as they are needed. Topic names are ASCII, so a set of characters is a number of 128 bits.

What differs from RE2: characters outside of ASCII match nothing; of the scripts in ``\\p{…}`` only Latin and Common are
known, and the general categories; ``\\C`` is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.coordinator.consumer_regex_syntax import (
    WORD,
    Assertion,
    Characters,
    Choice,
    InvalidPattern,
    Node,
    Parser,
    Repeat,
    Sequence,
)

MAX_PROGRAM = 10_000
MAX_STATES = 1_000


# ── the program ───────────────────────────────────────────────────────────────────────────────────────────────────


class Instruction(NamedTuple):
    """Either takes a character of a set and goes on, or checks, or goes two ways without taking any."""

    mask: int | None = None
    check: str | None = None
    ways: tuple[int, ...] = ()


class _Compiler:
    def __init__(self) -> None:
        self.program: list[Instruction] = []

    def add(self, instruction: Instruction) -> int:
        if len(self.program) >= MAX_PROGRAM:
            raise InvalidPattern("expression too large")
        self.program.append(instruction)
        return len(self.program) - 1

    def emit(self, node: Node) -> None:
        """Add the instructions of a node; it goes on at the instruction after them."""
        match node:
            case Characters(mask):
                self.add(Instruction(mask=mask))
            case Assertion(kind):
                self.add(Instruction(check=kind))
            case Sequence(parts):
                for part in parts:
                    self.emit(part)
            case Choice(parts):
                self._emit_choice(parts)
            case Repeat(part, least, most):
                self._emit_repeat(part, least, most)

    def _emit_choice(self, parts: tuple[Node, ...]) -> None:
        ends = []
        for part in parts[:-1]:
            fork = self.add(Instruction())
            self.emit(part)
            ends.append(self.add(Instruction()))
            self.program[fork] = Instruction(ways=(fork + 1, len(self.program)))
        self.emit(parts[-1])
        for end in ends:
            self.program[end] = Instruction(ways=(len(self.program),))

    def _emit_repeat(self, part: Node, least: int, most: int | None) -> None:
        for _ in range(least):
            self.emit(part)
        if most is None:
            fork = self.add(Instruction())
            self.emit(part)
            self.add(Instruction(ways=(fork,)))
            self.program[fork] = Instruction(ways=(fork + 1, len(self.program)))
            return
        forks = []
        for _ in range(most - least):
            forks.append(self.add(Instruction()))
            self.emit(part)
        for fork in forks:
            self.program[fork] = Instruction(ways=(fork + 1, len(self.program)))


# ── the automaton ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, eq=False)
class _State:
    """Where in the program one may be, and whether a word character was before; None at the start."""

    places: frozenset[int]
    after_word: bool | None
    following: dict[str, _State] = field(default_factory=dict)
    accepts: bool | None = None


class Pattern:
    """An expression that is ready to be matched.

    >>> Pattern("orders-(eu|us)").matches("orders-eu"), Pattern("orders").matches("orders-eu")
    (True, False)
    """

    def __init__(self, text: str) -> None:
        compiler = _Compiler()
        compiler.emit(Parser(text).parse())
        self._program = compiler.program
        self._states: dict[tuple[frozenset[int], bool | None], _State] = {}
        self._start = _State(frozenset([0]), None)

    def matches(self, name: str) -> bool:
        """Whether the whole of a name matches."""
        state = self._start
        for character in name:
            following = state.following.get(character)
            state = self._step(state, character) if following is None else following
            if not state.places:
                return False
        if state.accepts is None:
            state.accepts = len(self._program) in self._reachable(state, None)
        return state.accepts

    def _step(self, state: _State, character: str) -> _State:
        code = ord(character)
        is_word = code < 128 and bool(WORD >> code & 1)
        places = set()
        for place in self._reachable(state, is_word):
            mask = self._program[place].mask if place < len(self._program) else None
            if mask is not None and code < 128 and mask >> code & 1:
                places.add(place + 1)
        following = state.following[character] = self._state(frozenset(places), is_word)
        return following

    def _state(self, places: frozenset[int], after_word: bool | None) -> _State:
        if len(self._states) >= MAX_STATES:
            self._states.clear()
            self._start.following.clear()
        return self._states.setdefault((places, after_word), _State(places, after_word))

    def _reachable(self, state: _State, before_word: bool | None) -> set[int]:
        """Return where one gets without taking a character; ``before_word`` is of the next one, None at the end."""
        reached: set[int] = set()
        waiting = list(state.places)
        while waiting:
            place = waiting.pop()
            if place in reached:
                continue
            reached.add(place)
            if place == len(self._program):
                continue
            instruction = self._program[place]
            waiting.extend(instruction.ways)
            if instruction.check is not None and _holds(instruction.check, state.after_word, before_word):
                waiting.append(place + 1)
        return reached


def _holds(check: str, after_word: bool | None, before_word: bool | None) -> bool:
    match check:
        case "^":
            return after_word is None
        case "$":
            return before_word is None
        case "b":
            return bool(after_word) != bool(before_word)
        case _:
            return bool(after_word) == bool(before_word)
