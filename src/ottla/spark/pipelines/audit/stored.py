"""The last audit of a pipeline, in the checkpoint directory, so that others can show it. Does not need Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ottla.errors import OttlaError
from ottla.spark.pipelines.declaration import Pipeline
from ottla.spark.pipelines.places import place
from ottla.types import Millis

FILE = "audit.json"


class StoredAuditError(OttlaError):
    """The last audit cannot be read."""


@dataclass(frozen=True, slots=True)
class StoredAudit:
    """An audit as it was reported."""

    at: Millis
    report: Mapping[str, Any]
    """As `ottla pipeline audit --json` prints it."""
    text: str
    sinks: Sequence[str] = ()
    """The sinks that were asked for; empty for all."""
    since: Millis | None = None
    until: Millis | None = None


def save(pipeline: Pipeline, audit: StoredAudit) -> None:
    """Replace the stored audit; only local checkpoint directories have one."""
    where = place(pipeline.path(pipeline.checkpoint))
    if where is not None:
        where.replace(FILE, json.dumps(asdict(audit), ensure_ascii=False) + "\n")


def stored_audit(pipeline: Pipeline) -> StoredAudit | None:
    """The last audit; None if there was none, or if the checkpoint is not local."""
    where = place(pipeline.path(pipeline.checkpoint))
    text = None if where is None else where.read(FILE)
    try:
        return None if text is None else StoredAudit(**json.loads(text))
    except (ValueError, TypeError):
        raise StoredAuditError(
            f"{pipeline.path(pipeline.checkpoint)}/{FILE} is damaged; the next audit replaces it"
        ) from None
