"""CRC32C: the function of the package ``crc32c``, without the rest of that package.

Its ``__init__`` reads its own version from the metadata of installed packages and makes a command line, which takes as
long as all kernels of ours together, at every start of a broker. The function is in an extension beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _find() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., int] = module.crc32c
    return found


crc32c = _find()
