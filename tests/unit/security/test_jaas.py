"""JAAS texts as Kafka's documentation and tools write them."""

from __future__ import annotations

import pytest

from ottla.security.jaas import Jaas


def test_what_kafkas_tools_write_is_understood() -> None:
    found = Jaas.parse(r"""org.apache.kafka.X required  username='me' password="a\"b\\" user_alice = secret;""")
    assert found.module == "org.apache.kafka.X"
    assert (found.username, found.password) == ("me", 'a"b\\')
    assert found.users == {"alice": "secret"}
    assert Jaas.parse("x.ScramLoginModule required;").options == {}
    assert Jaas.parse('x required\n  user_a="1"\n  user_b="2 ; = \' 3";\n').users == {"a": "1", "b": "2 ; = ' 3"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must start with a login module"),
        ('username="me" password="hush";', "must start with a login module"),
        ('x maybe password="hush";', "must start with a login module"),
        ('x required password="hush"', "ends with a semicolon"),
        ('x required password="hush"; y required;', "one entry"),
        ('x required password="hush;', "not closed"),
        ('x required password "hush";', "option 1"),
        ('x required a="1" password=;', "option 2"),
    ],
)
def test_a_mistake_is_named_without_the_password(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        Jaas.parse(text)
    assert "hush" not in str(caught.value)
