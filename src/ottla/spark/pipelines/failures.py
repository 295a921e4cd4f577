"""Summarize in one or two lines why a flow failed.

    flow orders: ZeroDivisionError: division by zero (line 21 of steps.py, in price)
    flow orders: it was reading orders-0 from offset 10 to 41, orders-1 from offset 0 to 57

Spark provides only text: a failure in a worker arrives as a Python traceback inside a Java exception inside a Python
exception. Unknown text is shown unchanged, but shortened.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import PurePath

from ottla.errors import OttlaError
from ottla.spark.offsets import Range, parse_offsets, ranges_between
from ottla.spark.options import Offsets
from ottla.spark.pipelines import exit_codes
from ottla.spark.pipelines.declaration import SHARED

LONGEST = 600
MOST_RANGES = 4

_TRACEBACK = "Traceback (most recent call last):"
_PLACE = re.compile(r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)', re.MULTILINE)
_NOT_THE_USERS = ("pyspark", "py4j", "ottla", "importlib", "concurrent", "threading.py", "<frozen")
_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$", re.DOTALL)
_LOST_TASK = re.compile(r"(?:Lost task [^\n]*?|failed)\): (?P<cause>[^\n]+)")
_CAUSED_BY = re.compile(r"^Caused by: (?P<cause>[^\n]+)", re.MULTILINE)
_JAVA = re.compile(r"^(?:[a-z][\w$]*\.)+(?P<kind>[A-Z][\w$]*): (?P<message>.+)", re.DOTALL)
_CONDITION = re.compile(r"^\[(?P<name>[A-Z][A-Z0-9_.]+)\] ?(?P<message>.+)", re.DOTALL)
_FAILED_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ", re.DOTALL)
_STATE = re.compile(r"(?: *SQLSTATE: \w{5})+\s*$")
_RAISED_BY_RULES = "USER_RAISED_EXCEPTION"
#: Conditions with which Spark refuses the state of a query whose steps have changed.
_OTHER_STATE = re.compile(
    r"STATE_STORE_(KEY|VALUE)_(SCHEMA_NOT_COMPATIBLE|ROW_FORMAT_VALIDATION_FAILURE)"
    r"|STATE_STORE_(INVALID_VALUE_SCHEMA_EVOLUTION|COLUMN_FAMILY_SCHEMA_INCOMPATIBLE)"
    r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
)
_STATE_ADVICE = (
    "the steps have changed, and the state in the checkpoint is of the old ones. Undo this change. Or, to start again "
    "from the beginning, use `ottla pipeline reset` for this sink"
)
_OPTIONS = {
    "(subscribe, subscribePattern, assign)": "(topics, pattern, assign)",
    "use a new checkpointLocation for other topics": "start again from the beginning with `ottla pipeline reset --all`",
    "failOnDataLoss": "fail_on_data_loss",
}
_WORKER_DIED = re.compile(r"Python worker exited unexpectedly")
_OFFSETS = re.compile(r"^Current (?P<which>Committed|Available) Offsets: \{(?P<text>.*)\}$", re.MULTILINE)


class WrittenError(OttlaError):
    """The output of a sink does not belong to its checkpoint."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of one flow."""

    flow: str
    cause: str
    reading: str = ""
    """The offsets of the failed micro-batch, if known."""
    details: str = ""
    """Spark's full message."""
    is_of_output: bool = False
    """Whether the output of the flow belongs to another checkpoint."""

    @classmethod
    def of(cls, flow: str, error: object) -> Failure:
        """Build a failure from the exception of a query, or from its text."""
        text = str(error)
        return cls(flow, cause_of(error), reading_of(text), text, isinstance(error, WrittenError))

    @property
    def is_refusal(self) -> bool:
        """Whether a rule or the source refused the data, with Spark's `raise_error`."""
        return f"[{_RAISED_BY_RULES}]" in self.details

    @property
    def code(self) -> int:
        """The exit code: see `exit_codes.TABLE`."""
        if self.is_of_output or _OTHER_STATE.search(self.details):
            return exit_codes.OUTPUT_REFUSED
        return exit_codes.DATA_REFUSED if self.is_refusal else exit_codes.FAILED

    @property
    def lines(self) -> list[str]:
        reading = [f"it was reading {self.reading}"] if self.reading else []
        return [f"{called(self.flow)}: {line}" for line in (self.cause, *reading)]


def called(flow: str) -> str:
    """The name of a flow in messages; users see no flow for a read that sinks share.

    >>> called("table"), called("shared.orders")
    ('flow table', 'the shared read of source orders')
    """
    source = flow.removeprefix(f"{SHARED}.")
    return f"flow {flow}" if source == flow else f"the shared read of source {source}"


def cause_of(error: object) -> str:
    """The real cause.

    >>> cause_of("[STREAM_FAILED] Query [id = 1] terminated with exception: [NO_TABLE] It is gone. SQLSTATE: 42P01")
    'It is gone. (NO_TABLE)'
    """
    text = _FAILED_STREAM.sub("", str(error).partition("\n=== Streaming Query ===")[0]).strip()
    if not text:
        return type(error).__name__
    return _cut(_cause(_STATE.sub("", text)))


def _cause(text: str) -> str:
    if _TRACEBACK in text:
        return _from_python(text[text.rindex(_TRACEBACK) :])
    if _WORKER_DIED.search(text):
        return "a Python worker of Spark exited unexpectedly: it was killed, perhaps because memory ran out"
    lost, caused = _LOST_TASK.search(text), _CAUSED_BY.findall(text)
    inner = lost["cause"] if lost is not None else caused[-1] if caused else text.partition("\n\tat ")[0]
    return _from_java(_STATE.sub("", inner.strip()))


def _from_python(text: str) -> str:
    """The last line of a traceback, and the last place in user code."""
    places = list(_PLACE.finditer(text))
    tail = text[places[-1].end() :] if places else text[len(_TRACEBACK) :]
    raised = [line for line in tail.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    text = _STATE.sub("", "\n".join(raised)).strip()
    found = _RAISED.match(text)
    if found is None:
        return text or "unknown exception"
    kind, message = found["kind"], (found["message"] or "").strip()
    if kind.startswith("ottla."):
        return _declared(message)
    if kind.startswith(("pyspark.", "py4j.")):
        return _cause(message)
    place = next((one for one in reversed(places) if not is_foreign(one["file"])), None)
    where = (
        "" if place is None else f" (line {place['line']} of {PurePath(place['file']).name}, in {place['function']})"
    )
    return f"{kind}: {message}{where}" if message else f"{kind}{where}"


def _declared(message: str) -> str:
    """A message of the data source, with the keys of a declaration instead of options."""
    for theirs, ours in _OPTIONS.items():
        message = message.replace(theirs, ours)
    return message


def is_foreign(file: str) -> bool:
    """Whether a file of a traceback belongs to Spark, ottla or Python."""
    return any(part in _NOT_THE_USERS for part in PurePath(file).parts) or file.startswith(_NOT_THE_USERS)


def _from_java(text: str) -> str:
    java = _JAVA.match(text)
    kind, message = (java["kind"], java["message"]) if java is not None else ("", text)
    condition = _CONDITION.match(message)
    if condition is not None and condition["name"] == _RAISED_BY_RULES:
        return _STATE.sub("", condition["message"]).strip()
    if condition is not None and _OTHER_STATE.fullmatch(condition["name"]):
        return f"{_STATE_ADVICE} ({condition['name']})"
    if condition is not None:
        return f"{_first_paragraph(condition['message'])} ({condition['name']})"
    return f"{kind}: {_first_paragraph(message)}" if kind else _first_paragraph(message)


def _first_paragraph(text: str) -> str:
    """The first paragraph, without the query, the plan and the advice."""
    return _STATE.sub("", re.split(r"\n\n|\n==|;\n|\n'|; line \d+ pos", text)[0]).strip()


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def reading_of(text: str) -> str:
    """The offsets of the failed batch, from the query state below Spark's message."""
    offsets = {found["which"]: _offsets(found["text"]) for found in _OFFSETS.finditer(text)}
    if len(offsets) < 2:
        return ""
    ranges = ranges_between(offsets["Committed"], offsets["Available"])
    text = ", ".join(_range(one, offsets["Committed"]) for one in ranges[:MOST_RANGES])
    return f"{text} and {len(ranges) - MOST_RANGES} more partitions" if len(ranges) > MOST_RANGES else text


def _range(one: Range, committed: Offsets) -> str:
    begin = f" from offset {one.start} to" if one.key in committed else " up to offset"
    return f"{one.key}{begin} {one.end - 1}"


def _offsets(text: str) -> Offsets:
    """Parse the topics in ``source@1a2b: {"orders": {"0": 42}},other@3c4d: …``."""
    found: Offsets = {}
    decoder = json.JSONDecoder()
    for start in re.finditer(r": (?=\{)", text):
        try:
            value, _ = decoder.raw_decode(text, start.end())
        except ValueError:
            continue
        found |= parse_offsets(value) or {}
    return found
