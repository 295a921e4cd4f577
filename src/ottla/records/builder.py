"""The choice between the twins of what a producer does for every record: `_builder` in C, or `_builder_pure`.

It follows the choice of the other kernels (`_kernels.py`), so that ``OTTLA_PURE=1`` turns off all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records._kernels import KERNELS

if TYPE_CHECKING or KERNELS == "pure":
    from ottla.records._builder_pure import BatchBuilder, FastSend, Lanes, RecordFuture, murmur2
else:
    from ottla.records._builder import BatchBuilder, FastSend, Lanes, RecordFuture, murmur2

__all__ = ["BatchBuilder", "FastSend", "Lanes", "RecordFuture", "murmur2"]
