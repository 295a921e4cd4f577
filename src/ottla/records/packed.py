"""Packed offset commits, from the kernels in use: `_packed.pxi` (Cython) or `_packed_pure`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records._kernels import KERNELS

if TYPE_CHECKING or KERNELS == "pure":
    from ottla.records._packed_pure import PackedCommits, encode_packed, join_commits, pack_commits
else:
    from ottla.records._speedups import PackedCommits, encode_packed, join_commits, pack_commits

__all__ = ["PackedCommits", "encode_packed", "join_commits", "pack_commits"]
