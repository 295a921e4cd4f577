"""From a file to a checked pipeline: TOML, or Python that defines `pipeline`."""

from __future__ import annotations

from pathlib import Path

from ottla.spark.pipelines.declaration import Pipeline


def load(path: str | Path) -> Pipeline:
    """The pipeline of a .toml file, or of a .py file that defines `pipeline`; all its problems as `DeclarationError`."""
    raise NotImplementedError
