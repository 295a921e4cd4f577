"""System calls on many sockets at once: what `_sockets_pure` says, in C where that is built."""

from __future__ import annotations

from typing import Protocol

from ottla._twins import choose


class Kernels(Protocol):
    """What both twins offer: see `_sockets_pure`."""

    def current_cpu(self) -> int: ...

    def send_all(self, fds: list[int], frames: list[bytearray]) -> list[tuple[int, int]]: ...

    def receive_all(self, fds: list[int], buffer: bytearray, most: int) -> list[int]: ...


kernels: Kernels
kernels, KERNELS = choose("ottla.net.server._sockets", "ottla.net.server._sockets_pure")
