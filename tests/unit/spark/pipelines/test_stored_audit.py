"""The last audit of a pipeline in its checkpoint directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipelines import ConsoleSink, Pipeline, Source
from ottla.spark.pipelines.audit.stored import StoredAudit, StoredAuditError, save, stored_audit


def test_the_last_audit_is_stored(tmp_path: Path) -> None:
    source = Source(name="orders", topics=["orders"], format="json", schema="id BIGINT")
    pipeline = Pipeline(name="orders", checkpoint=str(tmp_path), sources=[source], sinks=[ConsoleSink(name="table")])
    assert stored_audit(pipeline) is None
    audit = StoredAudit(7, {"ok": True, "audits": []}, "all of 3 records arrived", ["table"], since=5)
    save(pipeline, audit)
    assert stored_audit(pipeline) == audit
    (tmp_path / "audit.json").write_text("[]")
    with pytest.raises(StoredAuditError, match=r"audit\.json is damaged; the next audit replaces it"):
        stored_audit(pipeline)
