"""The error if kazoo is not installed."""

from __future__ import annotations

import sys

import pytest

from ottla.errors import OttlaError
from ottla.zookeeper.client import ZooKeeper


async def test_kazoo_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ottla.zookeeper._kazoo", raising=False)
    monkeypatch.delattr("ottla.zookeeper._kazoo", raising=False)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(OttlaError, match=r"pip install 'ottla\[cluster\]'$"):
        ZooKeeper("localhost")
