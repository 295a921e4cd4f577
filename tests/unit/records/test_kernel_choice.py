"""The choice of the kernels, and its report."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from batch_material import TWINS

REPORT = "from ottla.records import Record, decode_batch, encode_batch; from ottla.protocol.codec import encode_data; "
REPORT += "assert decode_batch(encode_batch([Record(0, 0, None, None)])); "
REPORT += "assert encode_data('consumer_protocol_subscription', 0, {'topics': [], 'user_data': None}); "
REPORT += "from ottla.cli.kernels import KERNELS; print(KERNELS)"
WITHOUT_RECORDS = "import sys; sys.modules['ottla.records._speedups'] = None; "
WITHOUT_MESSAGES = "import sys; sys.modules['ottla.protocol._walker'] = None; "
WITHOUT_SENDING = "import sys; sys.modules['ottla.net.server._sockets'] = None; "


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
    assert kernels_in(WITHOUT_RECORDS + WITHOUT_MESSAGES + WITHOUT_SENDING + REPORT, None) == "pure"


@pytest.mark.skipif(len(TWINS) < 2, reason="the compiled twin is not built")
def test_it_is_said_if_some_are_built_and_some_are_not() -> None:
    said = "cython (records), pure (messages), cython (sockets)"
    assert kernels_in(WITHOUT_MESSAGES + REPORT, None) == said
