"""Which of two twins of a hot loop is in use: the compiled one where it was built, the one in Python otherwise, or if
``OTTLA_PURE=1`` asks for it."""

import os
from importlib import import_module
from typing import Any

PURE = os.environ.get("OTTLA_PURE", "") not in ("", "0")


def choose(compiled: str, pure: str) -> tuple[Any, str]:
    """The module that is in use of these two, and what it is called.

    >>> choose("ottla.net._no_such_module", "ottla.net.server._sockets_pure")[1]
    'pure'
    """
    if not PURE:
        try:
            return import_module(compiled), "cython"
        except ImportError:
            pass
    return import_module(pure), "pure"
