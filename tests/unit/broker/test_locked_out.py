"""A broker that nobody can use says so when it starts."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

import pytest

import ottla
from ottla.cli.main import main

SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
ACLS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
NO_USERS, NO_RULES = "nobody can log in", "nobody may do anything"


def told(caplog: pytest.LogCaptureFixture, config: dict[str, str], directory: Path) -> list[str]:
    """Return what a broker says when it starts."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "ottla.security"), ottla.Broker(directory, config=config):
        return [message for message in caplog.messages if message.startswith("nobody")]


def test_the_advice_helps(caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "my data"
    users, rules = told(caplog, SASL | ACLS, directory)
    assert users.startswith(NO_USERS)
    assert rules.startswith(NO_RULES)
    monkeypatch.setenv("SECRET", "secret")
    command = shlex.split(users.partition(": ")[2])
    assert main([*command[1:], "--password-env", "SECRET"]) == 0
    assert told(caplog, SASL | ACLS | {"super.users": "User:admin"}, directory) == []


@pytest.mark.parametrize(
    "more",
    [
        {"listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"},
        {"listener.name.sasl_plaintext.plain.sasl.jaas.config": 'x.PlainLoginModule required user_a="b";'},
    ],
)
def test_another_way_in_is_enough(caplog: pytest.LogCaptureFixture, tmp_path: Path, more: dict[str, str]) -> None:
    assert told(caplog, SASL | more, tmp_path) == []
