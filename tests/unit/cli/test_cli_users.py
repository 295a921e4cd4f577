"""``ottla users``: passwords from everywhere but the command line, and what is told about mistakes."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.broker.sasl_wire import log_in, sasl_broker, works
from tests.unit.broker.wire import Wire
from tests.unit.cli.cli_results import Ottla

from ottla.clients.admin.blocking import Admin


@pytest.fixture(autouse=True)
def no_users(bootstrap: str) -> Iterator[None]:
    yield
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_users(dict.fromkeys(admin.describe_users()))


def users(ottla: Ottla) -> list[tuple[str, str, int]]:
    found = json.loads(ottla("users", "list", "--json").out)
    return [(one["user"], one["mechanism"], one["iterations"]) for one in found]


def test_users_are_added_listed_and_removed(ottla: Ottla) -> None:
    assert "there are no users" in ottla("users", "list").err
    assert ottla("users", "add", "alice", stdin=b"her secret\n").text == "added user alice\n"
    added = ottla("users", "add", "bob", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192", stdin=b"x")
    assert added.code == 0
    assert users(ottla) == [
        ("alice", "SCRAM-SHA-256", 4096),
        ("alice", "SCRAM-SHA-512", 4096),
        ("bob", "SCRAM-SHA-512", 8192),
    ]
    assert ottla("users", "list").lines[0].split() == ["USER", "MECHANISM", "ITERATIONS"]
    assert ottla("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256").code == 0
    assert ottla("users", "remove", "alice", "bob").text == "removed 2 users: alice, bob\n"
    assert users(ottla) == []


def test_a_new_password_is_for_the_mechanisms_that_the_user_has(ottla: Ottla) -> None:
    ottla("users", "add", "alice", "--mechanism", "SCRAM-SHA-512", stdin=b"old")
    changed = ottla("users", "password", "alice", "--iterations", "5000", stdin=b"new")
    assert changed.text.startswith("changed the password of alice;")
    assert users(ottla) == [("alice", "SCRAM-SHA-512", 5000)]
    assert ottla("users", "password", "alice", stdin=b"newer").code == 0
    assert users(ottla) == [("alice", "SCRAM-SHA-512", 5000)]
    missing = ottla("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256")
    assert missing.code == 1
    assert "user 'alice' has no password for SCRAM-SHA-256" in missing.err
    removed = ottla("users", "remove", "alice", "--mechanism", "SCRAM-SHA-512")
    assert removed.text == "removed the password for SCRAM-SHA-512 of alice\n"


def test_passwords_come_from_the_terminal_a_file_or_the_environment(
    ottla: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("SECRET", "from the environment")
    assert ottla("users", "add", "a", "--password-file", str(tmp_path / "secret")).code == 0
    assert ottla("users", "add", "b", "--password-env", "SECRET").code == 0
    answers = iter(["typed", "typed", "typed", "wrong"])
    monkeypatch.setattr(getpass, "getpass", lambda prompt: next(answers))
    monkeypatch.setattr("ottla.cli.users.passwords.sys", _Terminal)
    assert ottla("users", "add", "c").code == 0
    assert "not the same" in ottla("users", "add", "d").err
    assert {name for name, _, _ in users(ottla)} == {"a", "b", "c"}


class _Terminal:
    class stdin:  # noqa: N801
        @staticmethod
        def isatty() -> bool:
            return True


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "problem"),
    [
        (("add", "alice", "--password", "hush"), b"", 2, "can be seen by everybody"),
        (("add", "alice"), b"", 2, "standard input has no password"),
        (("add", "alice", "--password-env", "NOT_SET_AT_ALL"), b"", 2, "NOT_SET_AT_ALL is not set"),
        (("add", "alice", "--password-file", "/no/such/file"), b"", 2, "cannot read /no/such/file"),
        (("add", "alice", "--iterations", "100"), b"hush", 2, "must be 4096 to 16384, not 100"),
        (("add", ""), b"hush", 2, "must not be empty"),
        (("add", "alice", "--mechanism", "PLAIN"), b"hush", 2, "choose one of SCRAM-SHA-256, SCRAM-SHA-512"),
        (("password", "nobody"), b"hush", 1, "there is no user 'nobody'; add it with ottla users add nobody"),
        (("remove", "nobody"), b"", 1, "there is no user 'nobody'; the users are: none"),
    ],
)
def test_a_mistake_is_one_line_without_the_password(
    ottla: Ottla, arguments: tuple[str, ...], stdin: bytes, code: int, problem: str
) -> None:
    result = ottla("users", *arguments, stdin=stdin)
    assert (result.code, result.err.count("\n")) == (code, 1)
    assert problem in result.err
    assert "hush" not in result.err
    assert users(ottla) == []


def test_a_user_is_not_added_twice(ottla: Ottla) -> None:
    ottla("users", "add", "alice", stdin=b"x")
    again = ottla("users", "add", "alice", stdin=b"y")
    assert again.code == 1
    assert "there is a user 'alice' already; for a new password use ottla users password alice" in again.err
    # The password that everybody can see is the worse mistake.
    assert "can be seen by everybody" in ottla("users", "add", "alice", "--password", "z").err


def test_the_first_user_is_added_before_the_first_start(ottla: Ottla, tmp_path: Path) -> None:
    assert ottla("users", "add", "admin", "--data-dir", str(tmp_path / "data"), stdin=b"first").code == 0
    for password in ("first", "second"):
        with sasl_broker(data_dir=tmp_path / "data") as sasl, Wire(sasl.sasl) as wire:
            assert log_in(wire, "SCRAM-SHA-512", "admin", password).error_code == 0
            assert works(wire)
            refused = ottla("users", "add", "admin", "--data-dir", str(tmp_path / "data"), stdin=b"x")
            assert "another broker" in refused.err
        assert ottla("users", "add", "admin", "--data-dir", str(tmp_path / "data"), stdin=b"second").code == 0
