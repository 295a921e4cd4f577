"""The event loop: uvloop where it is installed, asyncio's own otherwise, and never silently."""

from __future__ import annotations

import asyncio
import importlib
from types import ModuleType

uvloop: ModuleType | None
try:
    uvloop = importlib.import_module("uvloop")
except ImportError:  # no wheel for this platform: asyncio serves, and `ottla --version` says so
    uvloop = None

LOOP_NAME = "asyncio" if uvloop is None else f"uvloop {uvloop.__version__}"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop of the best kind there is.

    >>> loop = new_event_loop(); loop.close()
    """
    if uvloop is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
