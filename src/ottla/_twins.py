"""Choose between the compiled and the pure Python version of a hot loop.

The compiled one is used if it was built, unless ``OTTLA_PURE=1`` is set.
"""

import os
from importlib import import_module
from typing import Any

PURE = os.environ.get("OTTLA_PURE", "") not in ("", "0")


def choose(compiled: str, pure: str) -> tuple[Any, str]:
    """The module to use, and its kind: ``cython`` or ``pure``.

    >>> choose("ottla.net._no_such_module", "ottla.net.server._sockets_pure")[1]
    'pure'
    """
    if not PURE:
        try:
            return import_module(compiled), "cython"
        except ImportError:
            pass
    return import_module(pure), "pure"
