"""Temporary data directories."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ENOUGH = 256 << 20


def make_temporary() -> Path:
    """Make a directory for temporary data: in memory on Linux, because it need not reach a disk."""
    in_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH
    return Path(tempfile.mkdtemp(prefix="ottla-", dir=_MEMORY if in_memory else None))
