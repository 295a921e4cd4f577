"""The value of zookeeper.connect."""

from __future__ import annotations

import pytest

from ottla.config.zookeeper import ConnectString


@pytest.mark.parametrize(
    ("text", "addresses", "chroot"),
    [
        ("localhost", [("localhost", 2181)], ""),
        ("a:1, b:2 ,c", [("a", 1), ("b", 2), ("c", 2181)], ""),
        ("a:1,b:2/x/y", [("a", 1), ("b", 2)], "/x/y"),
        ("a:1/", [("a", 1)], ""),
        ("[::1]:2182,[::2]/x", [("::1", 2182), ("::2", 2181)], "/x"),
    ],
)
def test_addresses_and_chroot(text: str, addresses: list[tuple[str, int]], chroot: str) -> None:
    parsed = ConnectString.parse(text)
    assert (list(parsed.addresses), parsed.chroot) == (addresses, chroot)
    assert ConnectString.parse(str(parsed)) == parsed


@pytest.mark.parametrize("text", ["", "/x", "a:1,", "a:0", "a:70000", "a:b", "http://a:1", "a b:1", "[::1:2181"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        ConnectString.parse(text)


@pytest.mark.parametrize("text", ["a:1/x//y", "a:1/..", "a:1/x y"])
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(ValueError, match="is not a path of ZooKeeper such as /ottla"):
        ConnectString.parse(text)
