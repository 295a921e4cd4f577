"""A small, fixed part of `make fuzz-login`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.fuzz.strangers import LISTENERS, Target, hold, throw


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target(tmp_path_factory.mktemp("strangers")).running() as running:
        yield running


@pytest.mark.parametrize("listener", LISTENERS[1:])
def test_clients_that_do_not_log_in_hurt_nobody(target: Target, listener: str) -> None:
    throw(target, listener, 20, 500)
    hold(target, listener, 200)
