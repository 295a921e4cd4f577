"""The short form of ``make crash-registry``."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.survival import run


@pytest.mark.crash
def test_schemas_survive_kill_9(tmp_path: Path) -> None:
    run(tmp_path, 200)
