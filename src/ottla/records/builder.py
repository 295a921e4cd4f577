"""The producer's work for each record, from the kernels in use: `_builder` (Cython) or `_builder_pure`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records._kernels import KERNELS

if TYPE_CHECKING or KERNELS == "pure":
    from ottla.records._builder_pure import BatchBuilder, FastSend, Lanes, RecordFuture, murmur2
else:
    from ottla.records._builder import BatchBuilder, FastSend, Lanes, RecordFuture, murmur2

__all__ = ["BatchBuilder", "FastSend", "Lanes", "RecordFuture", "murmur2"]
