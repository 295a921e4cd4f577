"""What all parts of a declaration have: their place in the file, problems, and the documentation of keys."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ottla.errors import OttlaError

#: Columns with the origin of a record, which every source adds.
ORIGIN = ("_topic", "_partition", "_offset", "_timestamp", "_key")
#: Column names that a schema must not use.
RESERVED = (
    *(*ORIGIN, "_headers", "_value", "_parsed", "_failed", "_broken", "_letter", "_letter_id", "_unmet"),
    *("_version", "_deleted"),
)
#: Columns that a step with latest adds; the last two with history.
VERSION, DELETED, VALID_FROM, VALID_TO = "_version", "_deleted", "valid_from", "valid_to"
DEAD_LETTERS = "dead-letters"
SHARED = "shared"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A problem in a declaration: where it is, what is wrong, and what to do."""

    file: str
    line: int | None
    message: str
    is_passing: bool = False
    """Whether it may pass by itself: a server does not answer."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class DeclarationError(OttlaError):
    """The declaration of a pipeline is invalid; `problems` has all problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda one: (one.file, one.line or 0, one.message)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Where:
    """The line of a declaration, and the lines of its keys."""

    file: str = "pipeline"
    line: int | None = None
    keys: Mapping[str, int] = field(default_factory=dict)

    def problem(self, message: str, key: str | None = None, *, is_passing: bool = False) -> Problem:
        return Problem(self.file, self.keys.get(key or "", self.line), message, is_passing)


def doc(text: str, **more: Any) -> dict[str, Any]:
    """Metadata of a field: `least` is the minimum, `time` marks a duration, `file` an existing file, `sql` a "query" or
    an "expression" in SQL, and `example` is for the message about a missing key."""
    return {"doc": text, **more}


def caller() -> Where:
    """The place of the constructor call; the TOML reader replaces it."""
    frame = sys._getframe(2)  # 0 is this function, 1 the constructor
    return Where(frame.f_code.co_filename, frame.f_lineno)


Deliver = Literal["exactly-once", "at-least-once"]
ValueFormat = Literal["json", "avro", "csv", "text", "bytes"]
