"""Topics grow, and new topics match a pattern: the group picks them up."""

from __future__ import annotations

import re

import pytest

from ..clients.base import Admin
from ..conftest import create_and_wait, unique_name
from .conftest import MakeScenario
from .drivers import ALL


@pytest.mark.parametrize("kind", ALL)
def test_a_topic_gets_more_partitions(make_scenario: MakeScenario, setup_admin: Admin, kind: str) -> None:
    group = make_scenario(2)
    (topic,) = group.topics
    group.feed()
    group.join(kind)
    group.join(kind)
    group.settle()
    group.flowing()
    setup_admin.create_partitions(topic, 5)
    group.grow(topic, 5)
    group.settle()
    group.finish()


@pytest.mark.parametrize("kind", ALL)
def test_a_new_topic_fits_the_pattern(make_scenario: MakeScenario, setup_admin: Admin, kind: str) -> None:
    group = make_scenario()
    prefix = unique_name()
    create_and_wait(setup_admin, f"{prefix}-first", 2, {})
    create_and_wait(setup_admin, f"{prefix}x", 2, {})
    group.grow(f"{prefix}-first", 2)
    group.feed()
    group.join(kind, pattern=f"^{re.escape(prefix)}-.*")
    group.join(kind, pattern=f"^{re.escape(prefix)}-.*")
    group.settle()
    create_and_wait(setup_admin, f"{prefix}-second", 3, {})
    group.grow(f"{prefix}-second", 3)
    group.settle()
    # aiokafka loses its positions when the topics of its pattern change.
    group.finish(exactly_once=kind != "aiokafka")
