"""The codec with each of its kernels."""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec
from typing import Any
from unittest.mock import patch

import pytest

from ottla.protocol import _compiler, _kernels

TWINS: dict[str, Any] = {"pure": _compiler}
try:
    from ottla.protocol import _walker
except ImportError:
    pass
else:
    TWINS["cython"] = _walker


def codec_of(name: str, twin: Any) -> Any:
    """A separate `codec` module that uses this kernel."""
    spec = find_spec("ottla.protocol.codec")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with patch.object(_kernels, "kernels", twin), patch.object(_kernels, "KERNELS", name):
        spec.loader.exec_module(module)
    return module


CODECS = {name: codec_of(name, twin) for name, twin in TWINS.items()}
with_each_twin = pytest.mark.parametrize("codec", list(CODECS.values()), ids=list(CODECS))
