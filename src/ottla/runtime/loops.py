"""The event loop: uvloop if it is installed, else asyncio's."""

from __future__ import annotations

import asyncio
import importlib
from types import ModuleType

uvloop: ModuleType | None
try:
    uvloop = importlib.import_module("uvloop")
except ImportError:  # no wheel for this platform; `ottla --version` shows it
    uvloop = None

LOOP_NAME = "asyncio" if uvloop is None else f"uvloop {uvloop.__version__}"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop of the best available kind.

    >>> loop = new_event_loop(); loop.close()
    """
    if uvloop is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
