"""The audits of a pipeline as text and JSON. Does not need Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.spark.audit.report import AuditReport


@dataclass(frozen=True, slots=True)
class SinkAudit:
    """The audit of one sink for one topic of its sources."""

    sink: str
    report: AuditReport


@dataclass(frozen=True, slots=True)
class PipelineAudit:
    """The audits of a pipeline. `ok` is whether no problems were found; `str()` gives the text."""

    pipeline: str
    audits: tuple[SinkAudit, ...]
    not_audited: Mapping[str, str]
    """The reasons why sinks could not be audited."""

    @property
    def ok(self) -> bool:
        return all(one.report.ok for one in self.audits)

    def __str__(self) -> str:
        left = [f"sink {name} was not audited: {reason}" for name, reason in self.not_audited.items()]
        return "\n\n".join([*(str(one.report) for one in self.audits), *left])

    def to_json(self) -> dict[str, Any]:
        """The audits as plain values."""
        return {
            "pipeline": self.pipeline,
            "ok": self.ok,
            "audits": [{"sink": one.sink} | one.report.to_json() for one in self.audits],
            "not_audited": dict(self.not_audited),
        }
