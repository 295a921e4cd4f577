"""The report of an audit: counts by partition and time, and examples, as text, JSON and chart. Does not need Spark.

To add a count, add a field to `Counts` and a line to `_COLUMNS`; `plan.py` fills it by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from ottla.charts import Series, bar_chart
from ottla.types import Millis

_LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of records and of target rows.

    Each source record is counted in `produced` and in exactly one of `arrived`, `duplicates`, `dead`, `pending`,
    `filtered`, `unkeyed` and `lost`. Each target row is counted in `arrived`, `repeated`, `expired`, `outside`,
    `aborted` or `unknown`.
    """

    produced: int = 0
    """Records in the source now, within the audited offsets."""
    arrived: int = 0
    duplicates: int = 0
    """Repeated records with the same key; the target needs one of them."""
    dead: int = 0
    """Records in the dead letters instead of the target."""
    pending: int = 0
    """Records that the pipeline has not processed yet."""
    filtered: int = 0
    """Records that the rules and steps of a pipeline remove; known only to the audit of a pipeline."""
    unkeyed: int = 0
    """Records with a null key, which cannot be matched."""
    lost: int = 0
    repeated: int = 0
    """Target rows beyond the first of a record (or key)."""
    out_of_order: int = 0
    """Arrived records that follow a later one in the target."""
    late: int = 0
    """Arrived records that took longer than the limit."""
    expired: int = 0
    """Rows whose record was deleted by retention."""
    aborted: int = 0
    """Rows whose record belongs to an aborted transaction."""
    unknown: int = 0
    """Other rows without a record: it was compacted, or never existed."""
    outside: int = 0
    """Rows whose record is outside the audited offsets."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in COUNTS))

    @property
    def is_ok(self) -> bool:
        return not any(getattr(self, name) for name in FINDINGS)


COUNTS = tuple(one.name for one in fields(Counts))
#: Counts that make a report not ok, with their labels.
FINDINGS = {
    "lost": "lost",
    "repeated": "repeated",
    "aborted": "of aborted transactions",
    "unkeyed": "without a key",
    "out_of_order": "out of order",
    "late": "late",
}
#: Columns that are always shown; others only if they are not empty.
_ALWAYS = ("produced", "arrived", "lost", "repeated")
_COLUMNS = (
    ("produced", "PRODUCED"),
    ("arrived", "ARRIVED"),
    ("duplicates", "DUPLICATES"),
    ("dead", "DEAD-LETTERS"),
    ("pending", "PENDING"),
    ("filtered", "FILTERED"),
    ("lost", "LOST"),
    ("unkeyed", "NO-KEY"),
    ("repeated", "REPEATED"),
    ("aborted", "ABORTED"),
    ("out_of_order", "OUT-OF-ORDER"),
    ("late", "LATE"),
    ("expired", "EXPIRED"),
    ("unknown", "UNKNOWN"),
    ("outside", "OUTSIDE"),
)


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """One partition of the source; None for rows with an unknown partition."""

    partition: int | None
    counts: Counts
    start: int | None = None
    end: int | None = None
    position: int | None = None
    """The position of the pipeline, if known."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The records of a time range, by record time."""

    start: Millis
    counts: Counts


@dataclass(frozen=True, slots=True)
class Example:
    """A record with a problem."""

    kind: str
    """A name of `FINDINGS`."""
    partition: int | None
    offset: int | None
    times: int = 1
    """The number of target rows."""
    timestamp: Millis | None = None
    key: str | None = None
    value: str | None = None
    """The start of the value."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The time from the record timestamp to the arrival."""

    median: Millis
    p95: Millis
    longest: Millis


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit. `ok` is whether no problems were found; `str()` gives the text."""

    source: str
    target: str
    matched_by: str
    at: Millis
    """The time when the end of the source was read."""
    partitions: tuple[PartitionAudit, ...]
    buckets: tuple[Bucket, ...] = ()
    bucket_ms: Millis = 0
    examples: tuple[Example, ...] = ()
    delay: Delay | None = None
    order: str | None = None
    """The checked order: `key` or `partition`; None if order was not checked."""
    late_after: Millis | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def total(self) -> Counts:
        return sum((one.counts for one in self.partitions), Counts())

    @property
    def ok(self) -> bool:
        """Whether no problems were found."""
        return self.total.is_ok

    @property
    def findings(self) -> dict[str, int]:
        """The problems by the names of `Counts`; empty if ok."""
        return {name: count for name in FINDINGS if (count := getattr(self.total, name))}

    def __str__(self) -> str:
        return self.to_text()

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "source": self.source,
            "target": self.target,
            "matched_by": self.matched_by,
            "at": self.at,
            "ok": self.ok,
            "findings": self.findings,
            "total": asdict(self.total),
            "order": self.order,
            "late_after_ms": self.late_after,
            "delay_ms": None if self.delay is None else asdict(self.delay),
            "partitions": [
                {"partition": one.partition, "start": one.start, "end": one.end, "position": one.position}
                | asdict(one.counts)
                for one in self.partitions
            ],
            "bucket_ms": self.bucket_ms,
            "buckets": [{"start": one.start} | asdict(one.counts) for one in self.buckets],
            "examples": [asdict(one) for one in self.examples],
            "notes": list(self.notes),
        }

    # ── text ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_text(self) -> str:
        parts = [
            f"{self.source} -> {self.target}, matched by {self.matched_by}, up to {_moment(self.at)}",
            self._table(),
            self._delays(),
            self._examples(),
            "\n".join(f"note: {note}" for note in self.notes),
            self.verdict,
        ]
        return "\n\n".join(part for part in parts if part)

    @property
    def verdict(self) -> str:
        """A one-line summary."""
        total = self.total
        if not self.ok:
            found = ", ".join(f"{count:,} {FINDINGS[name]}" for name, count in self.findings.items())
            return f"NOT OK: {found} (of {total.produced:,} produced)"
        left = [
            f"{count:,} {what}"
            for count, what in (
                (total.duplicates, "duplicates dropped"),
                (total.dead, "in dead letters"),
                (total.pending, "pending"),
                (total.filtered, "filtered"),
            )
            if count
        ]
        more = f" ({', '.join(left)})" if left else ""
        return f"OK: {total.produced:,} produced, {total.arrived:,} arrived{more}, nothing lost, nothing repeated"

    def _table(self) -> str:
        total = self.total
        asked = {"out_of_order": self.order is not None, "late": self.late_after is not None}
        shown = [
            (name, title)
            for name, title in _COLUMNS
            if name in _ALWAYS or asked.get(name, False) or getattr(total, name)
        ]
        rows = [
            ["-" if one.partition is None else str(one.partition), _offsets(one)]
            + [f"{getattr(one.counts, name):,}" for name, _ in shown]
            for one in self.partitions
        ]
        rows.append(["all", ""] + [f"{getattr(total, name):,}" for name, _ in shown])
        return _text_table(["PARTITION", "OFFSETS", *(title for _, title in shown)], rows)

    def _delays(self) -> str:
        if self.delay is None:
            return ""
        limit = f", late after {_length(self.late_after)}" if self.late_after is not None else ""
        text = f"half within {_length(self.delay.median)}, 95 % within {_length(self.delay.p95)}"
        return f"arrived {text}, the last after {_length(self.delay.longest)}{limit}"

    def _examples(self) -> str:
        if not self.examples:
            return ""
        rows = [
            [
                FINDINGS[one.kind],
                "-" if one.partition is None else str(one.partition),
                "-" if one.offset is None else str(one.offset),
                str(one.times),
                "-" if one.timestamp is None else _moment(one.timestamp),
                _shown(one.key),
                _shown(one.value),
            ]
            for one in self.examples
        ]
        return _text_table(
            ["FOUND", "PARTITION", "OFFSET", "ROWS", "TIME", "KEY", "VALUE"], rows, left=("KEY", "VALUE")
        )

    # ── chart ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_svg(self) -> str:
        """A timeline of the produced records and their statuses, as SVG."""
        return bar_chart(
            title=f"{self.source} to {self.target}",
            subtitle=self.verdict,
            is_good=self.ok,
            starts=[one.start for one in self.buckets],
            width_ms=self.bucket_ms,
            stacked=self._series(("arrived", "duplicates", "dead", "pending", "filtered"), always=("arrived",)),
            outline=Series("produced", "produced", [one.counts.produced for one in self.buckets]),
            findings=self._series(("lost", "unkeyed", "repeated", "out_of_order", "late"), always=("lost", "repeated")),
        )

    def _series(self, names: Sequence[str], *, always: Sequence[str]) -> list[Series]:
        found = [
            Series(name, _LABELS.get(name, name), [getattr(one.counts, name) for one in self.buckets]) for name in names
        ]
        return [one for one in found if one.name in always or any(one.values)]


_LABELS: Mapping[str, str] = {"dead": "dead letters", "unkeyed": "without a key", "out_of_order": "out of order"}


def _offsets(one: PartitionAudit) -> str:
    return "" if one.start is None else f"{one.start}-{one.end}"


def _moment(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, tz=UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def _length(length: Millis) -> str:
    """Format a duration.

    >>> _length(83), _length(2500), _length(95_000), _length(5 * 3_600_000)
    ('83 ms', '2.5 s', '1.6 min', '5 h')
    """
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if abs(length) >= factor:
            return f"{length / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{length} ms"


def _shown(text: str | None) -> str:
    if text is None:
        return "-"
    plain = "".join(sign if sign.isprintable() else "\N{MIDDLE DOT}" for sign in text)
    return plain if len(plain) <= _LONGEST_VALUE else f"{plain[: _LONGEST_VALUE - 1]}\N{HORIZONTAL ELLIPSIS}"


def _text_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: Iterable[str] = ()) -> str:
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    to_left = [title in (*left, titles[0]) for title in titles]
    lines = [
        "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(row, widths, to_left, strict=True)
        ).rstrip()
        for row in (titles, *rows)
    ]
    return "\n".join(lines)
