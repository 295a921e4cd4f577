"""``ottla groups configs``: show, set and unset the configs of a group."""

from __future__ import annotations

import json

from tests.unit.cli.cli_results import Ottla

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_configs_are_shown_set_and_unset(ottla: Ottla, group: str) -> None:
    assert [line.split() for line in ottla("groups", "configs", group).lines[1:]] == [
        [SESSION, "45000", "broker", "default"],
        [HEARTBEAT, "5000", "broker", "default"],
    ]
    after = ottla("groups", "configs", group, "--config", f"{SESSION}=50000").lines
    assert after[1].split() == [SESSION, "50000", "group"]
    (shown,) = json.loads(ottla("groups", "configs", group, "--json").out)
    assert shown["configs"][SESSION] == {"value": "50000", "source": "group"}
    back = ottla("groups", "configs", group, "--delete-config", SESSION).lines
    assert back[1].split() == [SESSION, "45000", "broker", "default"]


def test_what_is_wrong_is_said(ottla: Ottla, group: str) -> None:
    short = ottla("groups", "configs", group, "--config", f"{SESSION}=10")
    assert short.code == 1
    assert "group.consumer.min.session.timeout.ms (45000)" in short.err
    both = ottla("groups", "configs", group, "--config", f"{SESSION}=50000", "--delete-config", SESSION)
    assert both.code == 2
    assert "both in --config and in --delete-config" in both.err
