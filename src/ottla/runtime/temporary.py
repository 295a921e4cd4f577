"""Temporary data directories."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MEMORY = Path("/dev/shm")
_ENOUGH = 256 << 20


def make_temporary() -> Path:
    """Make a directory for temporary data: in memory on Linux, because it need not reach a disk."""
    in_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH
    return Path(tempfile.mkdtemp(prefix="ottla-", dir=_MEMORY if in_memory else None))


def remove_with(owner: Any, directory: Path) -> Callable[[], object]:
    """Remove such a directory when its owner or the process ends, or when the result is called."""
    return weakref.finalize(owner, _remove, directory, os.getpid())


def _remove(directory: Path, process: int) -> None:
    if os.getpid() == process:  # A fork that ends leaves it to the process that made it.
        shutil.rmtree(directory, ignore_errors=True)
