"""The codec in use: `_walker` (Cython), or `_compiler` with the same results. `KERNELS` says which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla._twins import choose

if TYPE_CHECKING:
    from ottla.protocol import _compiler as kernels

    KERNELS: str
else:
    kernels, KERNELS = choose("ottla.protocol._walker", "ottla.protocol._compiler")

__all__ = ["KERNELS", "kernels"]
