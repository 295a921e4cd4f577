"""The type of byte buffers."""

from __future__ import annotations

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""A ``memoryview`` must be of contiguous bytes."""
