"""``ottla acls`` against a broker with an authorizer, and one without."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.cli_results import Ottla

from ottla.broker.broker import Broker

CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
ETL = ("--principal", "User:etl")
ASK = ("acls", "explain", *ETL, "--operation", "Write", "--topic", "orders")


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    with Broker(config=CONFIG) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def acls(ottla: Ottla, secured: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ottla]:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", secured)
    yield ottla
    for host in ("*", "10.0.0.0/8"):
        ottla("acls", "remove", "--host", host)


def lines(text: bytes) -> list[str]:
    return text.decode().splitlines()


def test_rules_are_added_listed_and_removed(acls: Ottla) -> None:
    added = acls("acls", "add", *ETL, "--operation", "read", "--topic", "orders", "--host", "10.0.0.0/8")
    assert (added.code, lines(added.out)) == (0, ["added: allow User:etl Read on topic orders from 10.0.0.0/8"])
    assert acls("acls", "add", *ETL, "--deny", "--operation", "All", "--group", "etl-", "--prefix").code == 0
    listed = lines(acls("acls", "list").out)
    assert [line.split() for line in listed] == [
        ["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "HOST"],
        ["User:etl", "Allow", "Read", "topic", "orders", "10.0.0.0/8"],
        ["User:etl", "Deny", "All", "groups", "that", "start", "with", "etl-", "*"],
    ]
    # A list has the rules that apply to a name, also by their prefix.
    assert "etl-" in lines(acls("acls", "list", "--group", "etl-orders").out)[1]
    assert acls("acls", "remove", "--topic", "orders", "--dry-run").out.startswith(b"would remove: allow")
    removed = acls("acls", "remove", *ETL)
    assert (removed.code, lines(removed.out)[-1]) == (0, "2 rules removed")
    assert acls("acls", "list").out == b"no rules\n"


def test_the_grants_of_a_producer_and_a_consumer(acls: Ottla) -> None:
    added = acls("acls", "add", *ETL, "--producer", "--consumer", "--topic", "orders", "--group", "etl")
    assert lines(added.out) == [
        "added: allow User:etl Write on topic orders from every host",
        "added: allow User:etl Describe on topic orders from every host",
        "added: allow User:etl Create on topic orders from every host",
        "added: allow User:etl Read on topic orders from every host",
        "added: allow User:etl Read on group etl from every host",
    ]


def test_explain_prints_a_command_that_helps(acls: Ottla) -> None:
    asked = acls(*ASK)
    answer, to_allow, command = lines(asked.out)
    assert (asked.code, to_allow) == (0, "To allow it:")
    assert answer == "no: User:etl may not Write on topic orders from 127.0.0.1: the resource has no rules."
    words = shlex.split(command)
    assert words[:3] == ["ottla", "acls", "add"]
    assert acls(*words[1:]).code == 0
    assert lines(acls(*ASK).out) == [
        "yes: User:etl may Write on topic orders from 127.0.0.1: "
        'the rule "allow User:etl Write on topic orders from every host" decides.'
    ]


def test_explain_removes_what_denies_first(acls: Ottla) -> None:
    acls("acls", "add", "--deny", "--principal", "User:*", "--operation", "Write", "--topic", "ord", "--prefix")
    acls("acls", "add", *ETL, "--operation", "Read", "--topic", "orders")
    answer, _, *commands = lines(acls(*ASK).out)
    assert answer.startswith(
        'no: User:etl may not Write on topic orders from 127.0.0.1: the rule "deny User:* Write on '
    )
    assert [shlex.split(each)[2] for each in commands] == ["remove", "add"]
    for command in commands:
        assert acls(*shlex.split(command)[1:]).code == 0
    assert acls(*ASK).out.startswith(b"yes: ")


def test_super_users_may_do_everything(acls: Ottla) -> None:
    asked = acls("acls", "explain", "--principal", "User:admin", "--operation", "Alter", "--cluster")
    assert lines(asked.out) == ["yes: User:admin may Alter on the cluster from 127.0.0.1: it is one of super.users."]


def test_questions_from_a_file(acls: Ottla, tmp_path: Path) -> None:
    acls("acls", "add", *ETL, "--operation", "Read", "--topic", "orders", "--host", "10.0.0.0/8")
    file = tmp_path / "permissions.txt"
    file.write_text(
        "# the pipeline\nallowed User:etl Read topic orders 10.1.2.3\n\ndenied User:etl Read topic orders\n"
        "denied User:etl Alter cluster\n"
    )
    asked = acls("acls", "test", "--file", str(file))
    assert (asked.code, lines(asked.out)[-1]) == (0, "3 answers right, 0 wrong")
    both = acls("acls", "test", "--file", str(file), *ETL, "--operation", "Write", "--topic", "orders")
    assert (both.code, lines(both.out)[-1]) == (1, "3 answers right, 1 wrong")
    assert lines(both.out)[0].startswith(
        "WRONG: User:etl may not Write on topic orders from 127.0.0.1: no rule allows it"
    )
    denied = acls("acls", "test", "--denied", *ETL, "--operation", "Write", "--topic", "orders")
    assert denied.code == 0
    file.write_text("allowed User:etl Raed topic orders\n")
    wrong = acls("acls", "test", "--file", str(file))
    assert wrong.code == 2
    assert "permissions.txt:1: 'Raed' is no operation; did you mean Read?" in wrong.err
    file.write_text("# nothing\n")
    empty = acls("acls", "test", "--file", str(file))
    assert empty.code == 2
    assert "permissions.txt has no questions. Write a line like: allowed" in empty.err


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("add", *ETL, "--operation", "Read"), "name a resource: --topic, --group"),
        (("add", *ETL, "--topic", "orders"), "--operation says what to allow on topic orders"),
        (("add", *ETL, "--operation", "Raed", "--topic", "t"), "'Raed' is no operation; did you mean Read?"),
        (
            ("add", *ETL, "--operation", "Write", "--group", "g"),
            "a group does not have the operation Write; it has Read",
        ),
        (("add", "--principal", "etl", "--operation", "Read", "--topic", "t"), "'etl' is not a principal such as"),
        (("add", *ETL, "--operation", "Read", "--topic", "t", "--host", "10.0.0.0/64"), "is not an address such as"),
        (("remove",), "say which rules to remove"),
        (
            ("explain", *ETL, "--operation", "Read", "--operation", "Write", "--topic", "t"),
            "explain takes one principal",
        ),
        (("explain", *ETL, "--operation", "All", "--topic", "t"), "a question is about one operation"),
        (("test",), "a question needs --principal, --operation and a resource"),
    ],
)
def test_wrong_usage(acls: Ottla, args: tuple[str, ...], problem: str) -> None:
    result = acls("acls", *args)
    assert result.code == 2
    assert problem in result.err


def test_a_broker_without_an_authorizer(ottla: Ottla) -> None:
    assert lines(ottla(*ASK).out) == ["yes: the cluster has no authorizer, so everyone may do everything."]
    listed = ottla("acls", "list")
    assert listed.code == 1
    assert "No Authorizer is configured on the broker: set authorizer.class.name" in listed.err
