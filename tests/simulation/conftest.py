from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.driver import Driver


@pytest.fixture
def answer_too_early(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A call that plants a bug: responses no longer wait until their records are committed."""
    wait_for = Driver._wait_for

    def forget(driver: Driver[Any], position: int) -> None:
        wait_for(driver, position)
        driver._uncommitted = None

    return lambda: monkeypatch.setattr(Driver, "_wait_for", forget)
