"""OffsetCommit, which consumers send all the time, read and answered without a message in between: see the twins."""

from __future__ import annotations

from ottla.protocol._commits_pure import FIRST_WITH_IDS
from ottla.protocol._kernels import KERNELS

if KERNELS == "cython":
    from ottla.protocol._walker import read_commit
else:
    from ottla.protocol._commits_pure import read_commit

__all__ = ["FIRST_WITH_IDS", "read_commit"]
