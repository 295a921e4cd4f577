"""``ottla registry`` and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import ottla
from ottla.cli.main import main


def start(broker: ottla.Broker, *arguments: str) -> int:
    return main(["registry", "-b", broker.bootstrap_servers, "--listen", "127.0.0.1:0", *arguments])


def test_topics_in_which_schemas_would_be_lost(broker: ottla.Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(ottla.NewTopic("_wide", 2, configs={"cleanup.policy": "compact"}))
        admin.create_topics(ottla.NewTopic("_deleting", 1))
    assert start(broker, "--topic", "_wide") == 1
    assert "the topic _wide has 2 partitions, but a registry needs exactly one" in capsys.readouterr().err
    assert start(broker, "--topic", "_deleting") == 1
    told = capsys.readouterr().err
    assert "cleanup.policy=delete, which deletes schemas" in told
    # The advice works word for word.
    command = told.split("Run: ottla ")[1].split()
    assert main([*command, "-b", broker.bootstrap_servers]) == 0


def test_wrong_options(broker: ottla.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(broker, "--users", str(tmp_path / "none")) == 2
    assert "--users: cannot read" in capsys.readouterr().err
    (tmp_path / "empty").write_text("# nobody\n")
    assert start(broker, "--users", str(tmp_path / "empty")) == 2
    assert "has no users; write one name=password per line" in capsys.readouterr().err
    (tmp_path / "open").write_text("alice=secret\nbob\n")
    assert start(broker, "--users", str(tmp_path / "open")) == 2
    assert "has no password; write bob=password" in capsys.readouterr().err
    taken = broker.registry_url.removeprefix("http://")
    assert main(["registry", "-b", broker.bootstrap_servers, "--listen", taken]) == 1
    assert "cannot listen" in capsys.readouterr().err


def test_a_broker_without_a_registry_says_how_to_get_one() -> None:
    with ottla.Broker() as broker, pytest.raises(ottla.OttlaError, match=r"start it with Broker\(registry=True\)"):
        print(broker.registry_url)
