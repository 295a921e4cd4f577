"""A broker whose groups rebalance at once, and groups with members."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from tests.unit.cli.cli_results import Ottla
from tests.unit.cli.groups.group_members import Member, give_all


@pytest.fixture
def group() -> str:
    return f"cli-group-{uuid4().hex[:8]}"


@pytest.fixture
def member(bootstrap: str, group: str) -> Iterator[Callable[..., Member]]:
    """Create members of the group, which leave after the test."""
    made: list[Member] = []

    def make(client_id: str, topic: str, **options: str) -> Member:
        made.append(Member(bootstrap, group, client_id, topic, **options))
        return made[-1]

    yield make
    for one in made:
        one.leave()
        one.close()


@pytest.fixture
def records(ottla: Ottla, topic: str) -> str:
    """A topic whose partition 0 has ten records, 1 has five and 2 none."""
    ottla("produce", topic, "--partition", "0", stdin=b"x\n" * 10)
    ottla("produce", topic, "--partition", "1", stdin=b"y\n" * 5)
    return topic


@pytest.fixture
def active(member: Callable[..., Member], records: str) -> Member:
    """The one member of the group, with all partitions, that has committed 4 of the 10 records of partition 0."""
    one = member("worker", records)
    give_all(one)
    one.commit({0: 4})
    return one


@pytest.fixture
def inactive(active: Member) -> Member:
    """The same member after it left."""
    active.leave()
    return active
