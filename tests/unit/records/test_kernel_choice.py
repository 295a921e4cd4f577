"""Which twin is in use, and that it is said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from batch_material import TWINS

REPORT = "from ottla.records import KERNELS, Record, decode_batch, encode_batch; "
REPORT += "assert decode_batch(encode_batch([Record(0, 0, None, None)])); print(KERNELS)"
WITHOUT_EXTENSION = "import sys; sys.modules['ottla.records._speedups'] = None; "


def kernels_in(code: str, pure: str | None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "OTTLA_PURE"}
    if pure is not None:
        environment["OTTLA_PURE"] = pure
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(len(TWINS) < 2, reason="the compiled twin is not built")
@pytest.mark.parametrize("pure", [None, "", "0"])
def test_the_compiled_twin_is_used_where_it_is_built(pure: str | None) -> None:
    assert kernels_in(REPORT, pure) == "cython"


def test_the_pure_twin_can_be_asked_for() -> None:
    assert kernels_in(REPORT, "1") == "pure"


def test_the_pure_twin_serves_where_the_other_is_not_built() -> None:
    assert kernels_in(WITHOUT_EXTENSION + REPORT, None) == "pure"
