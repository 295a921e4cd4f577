"""User names from certificates. The cases are those of Kafka's documentation and of its own behaviour."""

from __future__ import annotations

import pytest

from ottla.security.principal_rules import PrincipalRules, distinguished_name

RULES = (
    "RULE:^CN=(.*?),OU=Services.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/U,"
    "RULE:^.*[Cc][Nn]=([a-z.]*).*$/$1/, DEFAULT"
)


@pytest.mark.parametrize(
    ("distinguished", "name"),
    [
        ("CN=Etl,OU=Services,O=ottla,C=FR", "etl"),
        ("CN=alice,OU=data,O=ottla", "ALICE@DATA"),
        ("O=x,cn=bob.b,C=FR", "bob.b"),
        ("OU=nobody,O=ottla", "OU=nobody,O=ottla"),
    ],
)
def test_the_first_rule_that_matches_makes_the_name(distinguished: str, name: str) -> None:
    assert PrincipalRules.parse(RULES).name_of(distinguished) == name


def test_without_a_rule_there_is_no_name() -> None:
    assert PrincipalRules.parse("RULE:^CN=(.*)$/$1/").name_of("O=ottla") is None


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/", r"Tkac\, Adam"),
        ("RULE:^CN=(T)(.*)$/$1-$3-$12/", "T-$3-T2"),
        ("RULE:^CN=(?<first>.).*$/${first}/", "T"),
        (r"RULE:^CN=(.).*$/\$1\/$1/", "$1/T"),
        (",  ,RULE:^C\\w=(.).*$/$0/ ,, DEFAULT,", "CN=Tkac\\, Adam,O=x"),
    ],
)
def test_replacements(rules: str, name: str) -> None:
    assert PrincipalRules.parse(rules).name_of(r"CN=Tkac\, Adam,O=x") == name


@pytest.mark.parametrize(
    "rules",
    [
        "", " , ", "default", "DEFAUL", "DEFAULT/L", "RULE:CN=(.*?),OU=x.*/$1", "rule:^CN=(.*?)$/$1/",
        "RULE:^CN=(.*?)$/$1/L/U", "RULE:^CN=(.*?)$/L", "RULE:^CN=(.*?)$/$1/LU", "RULE:(/$1/", "RULE:(.*)/${who}/",
    ],
)  # fmt: skip
def test_anything_else_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"does not start|no rule|regular expression|no group"):
        PrincipalRules.parse(rules)


def test_distinguished_names_are_those_of_java() -> None:
    subject = (
        (("countryName", "FR"),),
        (("organizationName", 'a "b", c'), ("organizationalUnitName", "x+y")),
        (("emailAddress", "a@b"),),
        (("commonName", " etl # "),),
    )
    assert distinguished_name(subject) == (
        r"CN=\ etl \#\ ,1.2.840.113549.1.9.1=#1603614062," r"O=a \"b\"\, c+OU=x\+y,C=FR"
    )


@pytest.mark.parametrize(("size", "length"), [(127, "7f"), (128, "8180"), (256, "820100")])
def test_a_long_attribute_cannot_pretend_to_be_others(size: int, length: str) -> None:
    value = ",CN=admin," + "x" * (size - 10)
    name = distinguished_name(((("commonName", "guest"),), (("emailAddress", value),)))
    assert name == f"1.2.840.113549.1.9.1=#16{length}{value.encode().hex()},CN=guest"
