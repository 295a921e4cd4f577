"""Regular expressions of consumer subscriptions: RE2's syntax, matched against whole topic names in linear time.

Python's ``re`` would do neither: it goes back on its steps, so that one expression can hold up the broker for hours,
and it knows things that RE2 does not. The parser here gives a small program, which is run as a finite automaton
whose states are made as they are needed. Topic names are ASCII, so a set of characters is a number of 128 bits.

Linear is not yet short: a name may cost as many steps as it has characters times the program has instructions. What the
longest name can cost is known beforehand, and an expression that could cost too much is refused like one that is wrong.

What differs from RE2: characters outside of ASCII match nothing; of the scripts in ``\\p{…}`` only Latin and Common are
known, and the general categories; ``\\C`` is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from ottla.coordinator.consumer_regex_syntax import (
    ALL,
    DIGIT,
    LETTER,
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
"""Instructions."""
MAX_WORK = 150_000
"""Instructions that are looked at for the longest name, at worst; some tens of milliseconds."""
MAX_KEPT = 200_000
"""Places in all states that are kept while names are matched: some ten megabytes."""
LONGEST_NAME = 249
_IN_NAMES = LETTER | DIGIT | 1 << ord(".") | 1 << ord("_") | 1 << ord("-")


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
            raise InvalidPattern(
                f"expression too large: it makes more than {MAX_PROGRAM:,} steps; make counts smaller, or write * or +"
            )
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
            case Repeat(part, least, most, _):
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
            before = len(self.program)
            self.emit(part)
            if len(self.program) == before:
                return  # Nothing, however often, is nothing.
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
        self._alike = _alike({instruction.mask for instruction in self._program if instruction.mask})
        self._forget()
        self._check_work()

    def matching(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of the names that match, in their order; the states that it took are not kept."""
        try:
            return tuple(name for name in names if self.matches(name))
        finally:
            self._forget()

    def matches(self, name: str) -> bool:
        """Whether the whole of a name matches."""
        state = self._start
        for character in name.translate(self._alike):
            following = state.following.get(character)
            state = self._step(state, character) if following is None else following
            if not state.places:
                return False
        if state.accepts is None:
            after_word = state.after_word
            reached = self._reachable(state.places, lambda check: _holds(check, after_word, None))
            state.accepts = len(self._program) in reached
        return state.accepts

    def _check_work(self) -> None:
        """Raise InvalidPattern if the longest name may take too long: follow all names at once, whatever they have."""
        places, work = self._start.places, 0
        for _ in range(LONGEST_NAME):
            reached = self._reachable(places, lambda check: True)
            work += len(reached)
            if work > MAX_WORK:
                raise InvalidPattern(
                    f"expression too large: a name may take more than {MAX_WORK:,} steps to match; make counts such as "
                    "{0,100} smaller, or write * or + instead"
                )
            places = frozenset(place + 1 for place in reached if self._mask(place) & _IN_NAMES)

    def _mask(self, place: int) -> int:
        return self._program[place].mask or 0 if place < len(self._program) else 0

    def _step(self, state: _State, character: str) -> _State:
        code = ord(character)
        is_word = code < 128 and bool(WORD >> code & 1)
        reached = self._reachable(state.places, lambda check: _holds(check, state.after_word, is_word))
        places = frozenset(place + 1 for place in reached if code < 128 and self._mask(place) >> code & 1)
        following = state.following[character] = self._state(places, is_word)
        return following

    def _state(self, places: frozenset[int], after_word: bool | None) -> _State:
        known = self._states.get((places, after_word))
        if known is None:
            if self._kept > MAX_KEPT:
                self._forget()
            self._kept += 1 + len(places)
            known = self._states[places, after_word] = _State(places, after_word)
        return known

    def _forget(self) -> None:
        self._states: dict[tuple[frozenset[int], bool | None], _State] = {}
        self._kept = 0
        self._start = _State(frozenset([0]), None)

    def _reachable(self, places: Iterable[int], holds: Callable[[str], bool]) -> set[int]:
        """Return where one gets without taking a character, by checks that hold."""
        reached: set[int] = set()
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            if place in reached:
                continue
            reached.add(place)
            if place == len(self._program):
                continue
            instruction = self._program[place]
            waiting.extend(instruction.ways)
            if instruction.check is not None and holds(instruction.check):
                waiting.append(place + 1)
        return reached


@lru_cache(maxsize=100)
def compiled(text: str) -> Pattern:
    """Return the pattern of an expression, which is resolved again and again."""
    return Pattern(text)


def _alike(masks: Iterable[int]) -> dict[int, int]:
    """Return for each character the first that no set tells from it, so that they share the ways between states."""
    groups = [ALL & WORD, ALL & ~WORD]
    for mask in masks:
        groups = [part for group in groups for part in (group & mask, group & ~mask) if part]
    firsts = [(group, (group & -group).bit_length() - 1) for group in groups]
    return {code: first for group, first in firsts for code in range(first, 128) if group >> code & 1}


def _holds(check: str, after_word: bool | None, before_word: bool | None) -> bool:
    """Whether a check holds between two characters; None is the start, or the end, of the name."""
    match check:
        case "^":
            return after_word is None
        case "$":
            return before_word is None
        case "b":
            return bool(after_word) != bool(before_word)
        case _:
            return bool(after_word) == bool(before_word)
