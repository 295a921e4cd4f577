"""Memory is given back when a peak of connections is over."""

from __future__ import annotations

import pytest

from ottla.net.server import memory


def test_memory_is_given_back_once_when_many_connections_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(memory, "give_back", lambda: given.append(now))
    keeper = memory.Keeper()
    for now in (900, 5000, 4500, 4001, 4000, 3500, 3001, 3000, 100, 0, 0):
        keeper.count(now)
    assert given == [4000, 3000, 100]


def test_giving_back_is_harmless() -> None:
    memory.give_back()
