"""The choice between the two twins of the codec: `_walker` in C, `_compiler` in Python. `KERNELS` says which."""

from __future__ import annotations

from typing import Protocol

from ottla._twins import choose
from ottla.protocol._fields import Decoder, Encoder, Field, Framer


class Kernels(Protocol):
    """What both twins offer: functions for one version of a message."""

    def compile_decoder(
        self, name: str, fields: list[Field], version: int, flexible: bool, max_items: int | None = None
    ) -> Decoder: ...

    def compile_encoder(self, name: str, fields: list[Field], version: int, flexible: bool) -> Encoder: ...

    def compile_framer(self, name: str, fields: list[Field], version: int, flexible: bool) -> Framer: ...


kernels: Kernels
kernels, KERNELS = choose("ottla.protocol._walker", "ottla.protocol._compiler")
