"""System calls on many sockets at once: the C version of `_sockets_pure` if it is built."""

from __future__ import annotations

from typing import Protocol

from ottla._twins import choose


class Kernels(Protocol):
    """The interface of both twins: see `_sockets_pure`."""

    def current_cpu(self) -> int: ...

    def send_all(self, fds: list[int], frames: list[bytearray]) -> list[tuple[int, int]]: ...

    def receive_all(self, fds: list[int], buffer: bytearray, most: int) -> list[int]: ...


kernels: Kernels
kernels, KERNELS = choose("ottla.net.server._sockets", "ottla.net.server._sockets_pure")
