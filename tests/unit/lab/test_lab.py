"""The lab: the same seed gives the same figures, and the claims about the designs hold in them."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.errors import ConfigError
from ottla.lab.runs import DESIGNS, Result, run
from ottla.lab.scenarios import BY_NAME, read_scenario, scenario

NEW = [design for design in DESIGNS if design not in ("watchers", "server")]


@cache
def measured(design: str, name: str, members: int = 10, seed: int = 1) -> Result:
    """The figures of a run, which several tests look at."""
    return run(design, scenario(name, members), members=members, seed=seed)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_recovers_from_every_scenario(design: str, name: str) -> None:
    result = measured(design, name)
    assert result.stable_after_ms is not None, "all partitions have one reader at the end"
    assert result.requests > 0


@pytest.mark.parametrize("design", DESIGNS)
def test_the_same_seed_gives_the_same_figures(design: str) -> None:
    flapping, crashes = (scenario(name, 4) for name in ("flapping-network", "crash-loop"))
    first, again = ([run(design, one, members=4, seed=1) for one in (flapping, crashes)] for _ in range(2))
    assert first == again


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["long-pauses", "flapping-network"])
def test_only_watchers_have_two_owners_whose_commits_nobody_refuses(name: str, seed: int) -> None:
    assert measured("watchers", name, seed=seed).split_brains > 0
    assert [measured(design, name, seed=seed).split_brains for design in DESIGNS[1:]] == [0] * 5


def test_notifications_of_watchers_grow_quadratically_and_those_of_the_others_do_not() -> None:
    """A rolling deploy has as many events as members. Each event tells every watcher, or only the coordinator."""
    watchers, server = (
        [measured(design, "rolling-deploy", members).notifications for members in (10, 20, 40)]
        for design in ("watchers", "server")
    )
    for smaller, larger in pairwise(watchers):
        assert 3.2 < larger / smaller < 4.8
    for smaller, larger in pairwise(server):
        assert 1.6 < larger / smaller < 2.4
    assert [measured(design, "rolling-deploy").notifications for design in NEW] == [0] * len(NEW)


def test_the_herd_of_watchers_is_the_largest() -> None:
    bursts = {design: measured(design, "scale", 30).burst for design in DESIGNS}
    assert max(bursts, key=bursts.__getitem__) == "watchers"
    assert min(bursts, key=bursts.__getitem__) == "consumer"


def test_an_eager_group_stops_for_one_slow_member_and_an_incremental_one_does_not() -> None:
    without = {design: measured(design, "slow-member").without_ms for design in DESIGNS}
    assert without["classic-eager"] > 50 * without["classic-cooperative"]
    assert without["classic-eager"] > 50 * without["consumer"]
    assert min(without, key=without.__getitem__) == "consumer"


def test_static_members_move_nothing_in_a_rolling_deploy() -> None:
    assert measured("classic-static", "rolling-deploy").moved == 0
    eager, cooperative = (measured(f"classic-{kind}", "rolling-deploy").moved for kind in ("eager", "cooperative"))
    assert cooperative < eager / 3


def test_a_clean_end_reads_nothing_twice_and_a_crash_does() -> None:
    assert all(measured(design, "rolling-deploy").read_twice == 0 for design in DESIGNS)
    assert all(measured(design, "crash-loop").read_twice > 0 for design in DESIGNS)


def test_a_shorter_session_timeout_shortens_the_gap_after_a_crash() -> None:
    crash = scenario("crash-loop", 6)
    long, short = (run("consumer", crash, members=6, seed=1, session_timeout=ms) for ms in (20_000, 4_000))
    assert short.worst_without_ms < long.worst_without_ms


@pytest.mark.parametrize("members", [100, pytest.param(300, marks=pytest.mark.long)])
def test_hundreds_of_members(members: int) -> None:
    result = measured("consumer", "failover", members)
    assert (result.partitions, result.without_ms) == (2 * members, 0)


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_table_marks_the_least_time_without_consumption(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "slow-member", "--members", "4"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith(DESIGNS)}
    assert list(rows) == list(DESIGNS)
    assert [name for name, line in rows.items() if "*" in line] == ["consumer"]
    assert "seed 1" in out


def test_json_and_a_chart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chart = tmp_path / "crash.svg"
    args = ["--members", "4", "--design", "consumer", "--design", "watchers", "--seed", "7", "--json"]
    assert main(["lab", "crash-loop", *args, "--chart", str(chart)]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [(one["design"], one["seed"]) for one in results] == [("consumer", 7), ("watchers", 7)]
    assert "crash-loop" in chart.read_text()
    assert chart.read_text().startswith("<svg")


def test_a_scenario_of_your_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('settle = 30\n[[event]]\nat = 5\naction = "pause"\nmember = 1\nseconds = 15\n')
    assert main(["lab", str(path), "--members", "3", "--design", "consumer", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["scenario"], result["without_ms"] > 0) == ("mine", True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have [[event]] tables"),
        ("[[event]]\nat = 1\naction = 'explode'\n", "event 1: action must be one of start, leave"),
        ("[[event]]\nat = 1\naction = 'pause'\n", "event 1: pause needs seconds"),
        ("[[event]]\naction = 'crash'\n", "event 1: at must be a number of seconds"),
        ("[[event]]\nat = 1\naction = 'crash'\nmembers = 2\n", "event 1 has an unknown key members"),
        ("x = ", "is not a TOML file"),
    ],
)
def test_wrong_scenarios_are_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_scenario(path)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["crash-lop"], "there is no scenario crash-lop: did you mean crash-loop?"),
        (["all", "--chart", "x.svg"], "--chart: choose one scenario"),
        (["scale", "--members", "5000"], "--members: at most 1000"),
        (["scale", "--session-timeout", "1h"], "--session-timeout: from 1s to 30m"),
    ],
)
def test_wrong_usage_is_told(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *args]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["flapping-network", "--real"], "cuts members off the network, which only the simulation can do"),
        (["scale", "--real", "--members", "30"], "at most 20 members, because each is a process"),
        (["scale", "--real", "--chart", "x.svg"], "--chart: not with --real"),
        (["--group", "g", "--real"], "--real: not with --group"),
    ],
)
def test_what_real_processes_cannot_do(args: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *args]) == 2
    assert problem in capsys.readouterr().err
