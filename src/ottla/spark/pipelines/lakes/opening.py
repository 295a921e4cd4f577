"""Open the table of a declared sink, with its secrets."""

from __future__ import annotations

from ottla.config.secrets import resolved
from ottla.spark.pipelines.declaration import LakeSink, Pipeline
from ottla.spark.pipelines.lakes.delta import DeltaLake
from ottla.spark.pipelines.lakes.iceberg import IcebergLake
from ottla.spark.pipelines.options import as_settings

#: Settings of a SQL catalog whose paths start at the directory of the declaration.
_LOCAL_DATABASE = "sqlite:///"


def open_lake(pipeline: Pipeline, sink: LakeSink) -> DeltaLake | IcebergLake:
    """The table of a sink; raises LakeError if the catalog or the object store does not answer."""
    storage = resolved(as_settings(sink.storage))
    if sink.format == "delta":
        return DeltaLake(pipeline.path(sink.path or ""), storage, as_settings(sink.properties))
    return IcebergLake(sink.table or "", catalog_of(pipeline, sink), storage, as_settings(sink.properties))


def catalog_of(pipeline: Pipeline, sink: LakeSink) -> dict[str, str]:
    """The settings of the catalog; relative paths start at the directory of the declaration."""
    found: dict[str, str] = resolved(as_settings(sink.catalog))
    uri, warehouse = found.get("uri", ""), found.get("warehouse", "")
    if uri.startswith(_LOCAL_DATABASE) and not uri.startswith(f"{_LOCAL_DATABASE}/"):
        found["uri"] = f"{_LOCAL_DATABASE}{pipeline.path(uri.removeprefix(_LOCAL_DATABASE))}"
    if warehouse and found.get("type") == "sql" and "://" not in warehouse:
        found["warehouse"] = f"file://{pipeline.path(warehouse)}"
    return found
