"""How often the console reads the cluster."""

from __future__ import annotations

import pytest

from ottla.console.collector import INTERVAL, rest_after


@pytest.mark.parametrize(("took", "rest"), [(0.1, INTERVAL), (2.0, 18.0), (20.0, 60.0)])
def test_a_large_cluster_is_read_less_often_but_at_least_every_minute(took: float, rest: float) -> None:
    assert rest_after(took, INTERVAL, failed=False) == rest


def test_brokers_that_did_not_answer_are_asked_again_soon() -> None:
    """A round that failed may have waited for as long as its requests may take."""
    assert rest_after(20.0, INTERVAL, failed=True) == INTERVAL
