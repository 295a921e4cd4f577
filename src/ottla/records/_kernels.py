"""The kernels in use: `_speedups` (Cython), or `_pure` with the same results and errors. `KERNELS` says which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla._twins import choose

if TYPE_CHECKING:
    from ottla.records import _pure as kernels

    KERNELS: str
else:
    kernels, KERNELS = choose("ottla.records._speedups", "ottla.records._pure")

__all__ = ["KERNELS", "kernels"]
