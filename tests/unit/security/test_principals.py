"""Principals in Kafka's form."""

from __future__ import annotations

import pytest

from ottla.security.principals import Principal, parse_principals


def test_principals_are_separated_by_semicolons() -> None:
    found = parse_principals(" User:alice ; User:CN=b:1,O=ottla;")
    assert found == {Principal("User", "alice"), Principal("User", "CN=b:1,O=ottla")}
    assert parse_principals("") == frozenset()


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", "User:a;b"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as User:alice"):
        parse_principals(text)
