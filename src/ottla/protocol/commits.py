"""`read_commit`: read an OffsetCommit request and make its response in one step, without a message in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol._commits_pure import FIRST_WITH_IDS
from ottla.protocol._kernels import KERNELS

if TYPE_CHECKING or KERNELS == "pure":
    from ottla.protocol._commits_pure import read_commit
else:
    from ottla.protocol._walker import read_commit

__all__ = ["FIRST_WITH_IDS", "read_commit"]
