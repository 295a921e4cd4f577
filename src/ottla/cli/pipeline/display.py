"""Show a running pipeline as a table that is redrawn in place, as lines of text, or as lines of JSON.

All displays read a `Board`: `show` is called a few times per second, `close` at the end. Progress goes to stderr, JSON
to stdout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TextIO

from ottla.cli.terminal import plural, table
from ottla.spark.pipelines.declaration import DEAD_LETTERS
from ottla.spark.pipelines.limits import Counted
from ottla.spark.pipelines.progress import RUNNING, STARTING, Batch, Board, FlowProgress, RuleProgress

HEADERS = ("FLOW", "BATCH", "ROWS", "ROWS/S", "LAG", "BATCH TIME", "DEAD LETTERS")
REDRAW_SECONDS = 0.2
#: The rate of an older batch is shown as 0.
FRESH_SECONDS = 10.0
LINE_SECONDS = 10.0


class Display(Protocol):
    def show(self, board: Board) -> None: ...
    def close(self, board: Board) -> None: ...


def rows_of(flows: list[FlowProgress], *, now: float) -> list[list[str | None]]:
    """The rows of the table; `now` is in epoch seconds."""
    return [
        [
            flow.name,
            None if flow.last is None else f"{flow.last.number:,}",
            f"{flow.rows:,}",
            None if flow.last is None else f"{_rate(flow.last, now):,.0f}",
            None if flow.lag is None else f"{flow.lag:,}",
            None if flow.last is None else f"{flow.last.seconds:.2f} s",
            None if flow.dead_letters is None else f"{flow.dead_letters:,}",
        ]
        for flow in flows
    ]


def rule_table(rules: Iterable[RuleProgress]) -> str:
    """The rules with their counts; empty without rules. Dead letters have their own column and line."""
    rows = [
        [one.rule, one.flow, str(one.total), str(one.last), None if one.limit is None else str(one.limit)]
        for one in rules
        if not one.rule.startswith(f"{DEAD_LETTERS}.")
    ]
    return table(("RULE", "FLOW", "BROKEN BY", "IN THE LAST BATCH", "AT MOST"), rows) if rows else ""


def _rate(batch: Batch, now: float) -> float:
    return batch.rows_per_second if now - (batch.at / 1000 + batch.seconds) < FRESH_SECONDS else 0.0


def elapsed(seconds: float) -> str:
    """
    >>> elapsed(59), elapsed(3723)
    ('0:59', '1:02:03')
    """
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


class Table:
    """For a terminal: a table that is redrawn in place."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.time,
        width: Callable[[], int] | None = None,
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._width = width or _terminal_width
        self._begin = clock()
        self._next = 0.0
        self._drawn = 0

    def show(self, board: Board) -> None:
        board.news()
        if self._clock() >= self._next:
            self._next = self._clock() + REDRAW_SECONDS
            self._draw(board, " Press Ctrl-C to stop.")

    def close(self, board: Board) -> None:
        self._draw(board, "")

    def _draw(self, board: Board, hint: str) -> None:
        flows = board.flows()
        dead = f", {plural(board.dead_letters, 'dead letter')}" if any(one.writes_dead_letters for one in flows) else ""
        state = "starting" if all(flow.state == STARTING for flow in flows) else "running"
        if not any(flow.state in (STARTING, RUNNING) for flow in flows):
            state = "ended"
        title = f"{board.pipeline}: {state}, {elapsed(self._clock() - self._begin)}{dead}.{hint}"
        text = table(HEADERS, _right(rows_of(flows, now=self._clock())))
        rules = rule_table(board.rules()).splitlines()
        lines = [line[: self._width() - 1] for line in (title, *text.splitlines(), *rules)]
        back = f"\x1b[{self._drawn}F" if self._drawn else ""
        self._stream.write(back + "\x1b[J" + "\n".join(lines) + "\n")
        self._stream.flush()
        self._drawn = len(lines)


def _right(rows: list[list[str | None]]) -> list[list[str]]:
    """Right-align formatted numbers."""
    widths = [max([len(header), *(len(row[i] or "-") for row in rows)]) for i, header in enumerate(HEADERS)]
    return [[row[0] or "", *((row[i] or "-").rjust(widths[i]) for i in range(1, len(HEADERS)))] for row in rows]


def _terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 120


class Lines:
    """For a pipe or log file: one line per flow and interval, if it made progress."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        interval: float = LINE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream or sys.stderr
        self._interval = interval
        self._clock = clock
        self._waiting: dict[str, list[tuple[FlowProgress, Batch]]] = {}
        self._next: dict[str, float] = {}

    def show(self, board: Board) -> None:
        self._collect(board)
        for name in list(self._waiting):
            if self._clock() >= self._next.get(name, 0.0):
                self._print(name)

    def close(self, board: Board) -> None:
        self._collect(board)
        for name in list(self._waiting):
            self._print(name)

    def _collect(self, board: Board) -> None:
        for flow, batch in board.news():
            if batch.rows or not flow.rows:
                self._waiting.setdefault(flow.name, []).append((flow, batch))

    def _print(self, name: str) -> None:
        news = self._waiting.pop(name)
        self._next[name] = self._clock() + self._interval
        flow, last = news[-1]
        first = news[0][1].number
        which = f"batch {last.number}" if first == last.number else f"batches {first} to {last.number}"
        rows, seconds = sum(batch.rows for _, batch in news), sum(batch.seconds for _, batch in news)
        parts = [f"{which}: {plural(rows, 'row')} in {seconds:.2f} s"]
        if rows and seconds:
            parts.append(f"{rows / seconds:,.0f} rows/s")
        if last.lag is not None:
            parts.append(f"lag {last.lag:,}")
        if flow.dead_letters is not None:
            parts.append(f"{plural(flow.dead_letters, 'dead letter')} so far")
        parts += [f"rule {rule} broken by {counted}" for rule, counted in _broken(batch for _, batch in news)]
        at = time.strftime("%H:%M:%S", time.localtime(last.at / 1000 + last.seconds))
        self._stream.write(f"{at} {name}, {', '.join(parts)}\n")
        self._stream.flush()


def _broken(batches: Iterable[Batch]) -> list[tuple[str, Counted]]:
    """The rules that rows of these batches broke."""
    found: dict[str, Counted] = {}
    for batch in batches:
        for rule, counted in batch.rules.items():
            found[rule] = found.get(rule, Counted()) + counted
    return [(rule, counted) for rule, counted in found.items() if counted.violations]


class Silence:
    """Show nothing."""

    def show(self, board: Board) -> None:
        board.news()

    def close(self, board: Board) -> None:
        board.news()


class JsonLines:
    """For programs: one JSON object per micro-batch."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def show(self, board: Board) -> None:
        for flow, batch in board.news():
            self.tell("progress", **progress_fields(board.pipeline, flow, batch))

    def close(self, board: Board) -> None:
        self.show(board)

    def tell(self, event: str, **fields: Any) -> None:
        self._stream.write(json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n")
        self._stream.flush()


def progress_fields(pipeline: str, flow: FlowProgress, batch: Batch) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "flow": flow.name,
        "batch": batch.number,
        "timestamp": batch.at,
        "rows": batch.rows,
        "rows_per_second": round(batch.rows_per_second, 1),
        "lag": batch.lag,
        "seconds": batch.seconds,
        "rows_total": flow.rows,
        "dead_letters_total": flow.dead_letters,
        "rules": {rule: {"rows": one.rows, "violations": one.violations} for rule, one in batch.rules.items()},
    }


def rule_fields(one: RuleProgress) -> dict[str, Any]:
    """A rule as JSON."""
    return {
        "rule": one.rule,
        "flow": one.flow,
        "rows": one.total.rows,
        "violations": one.total.violations,
        "last_batch": {"rows": one.last.rows, "violations": one.last.violations},
        "at_most": None if one.limit is None else str(one.limit),
        "limit_exceeded": one.exceeded is not None,
    }


def summary(board: Board) -> str:
    """The final summary."""
    rows = [
        [flow.name, flow.state, flow.batches, flow.rows, "-" if flow.lag is None else f"{flow.lag:,}"]
        for flow in board.flows()
    ]
    dead = [flow for flow in board.flows() if flow.writes_dead_letters]
    text = table(("FLOW", "STATE", "BATCHES", "ROWS", "LAG"), rows)
    letters = plural(board.dead_letters, "dead letter") if dead else ""
    return "\n".join(part for part in (text, letters, rule_table(board.rules())) if part)
