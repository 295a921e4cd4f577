"""What bytes are read from."""

from __future__ import annotations

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Anything with bytes in it. A ``memoryview`` must be of plain, contiguous bytes."""
