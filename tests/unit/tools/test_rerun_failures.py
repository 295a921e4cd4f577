"""`make test` reruns failures alone: a flaky test is named and fails the run, whatever it was that failed first."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONFIG = """
[tool.pytest.ini_options]
addopts = "-q"
filterwarnings = ["error::pytest.PytestUnraisableExceptionWarning", "error::ResourceWarning"]
"""
#: `first` is true in the first run of a test only.
HEAD = """
import gc, os, pathlib, signal
import pytest

def first(name):
    path = pathlib.Path(name)
    return not path.exists() and path.write_text("") == 0

class Leak:
    def __init__(self):
        self.cycle = self
        self.file = open(__file__)
"""
PLANTED = """
def test_passes():
    pass

def test_flaky():
    assert not first("flaky"), "only the first time"

def test_deterministic():
    assert first("deterministic") is None, "every time"

def test_killed_once():
    if first("killed"):
        os.kill(os.getpid(), signal.SIGKILL)

@pytest.fixture
def teardown():
    yield
    assert not first("teardown"), "in the teardown"

def test_teardown(teardown):
    pass

def test_leak_once():
    if first("leak"):
        Leak()
        gc.collect()

def test_leak_always():
    Leak()
    gc.collect()
"""


def run(directory: Path, program: str, *options: str) -> tuple[int, str]:
    (directory / "pyproject.toml").write_text(CONFIG)
    (directory / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (directory / "test_planted.py").write_text(HEAD + program)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "xdist.plugin",
    }
    command = [sys.executable, "-m", "pytest", "-p", "tools.rerun_failures", *options]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    code, output = run(tmp_path_factory.mktemp("planted"), PLANTED, "-n2")
    assert code == 1, output
    return output


def entry(output: str, test: str) -> str:
    """The FLAKY line of a test with the indented first failure below it."""
    found = re.search(rf"^FLAKY test_planted.py::{test}\n(    .*\n|\n)+", output, re.MULTILINE)
    assert found is not None, output
    return found[0]


@pytest.mark.parametrize(
    ("test", "failure"),
    [
        ("test_flaky", "only the first time"),
        ("test_killed_once", "crashed while running"),
        ("test_teardown", "in the teardown"),
        ("test_leak_once", "ResourceWarning: unclosed file"),
    ],
)
def test_a_test_that_passes_alone_is_flaky_and_its_first_failure_is_shown(
    planted: str, test: str, failure: str
) -> None:
    assert failure in entry(planted, test)
    assert f"FAILED test_planted.py::{test}" not in planted


@pytest.mark.parametrize(("test", "failure"), [("test_deterministic", "every time"), ("test_leak_always", "unclosed")])
def test_a_test_that_fails_again_is_failed_with_both_failures(planted: str, test: str, failure: str) -> None:
    assert f"\nFAILED test_planted.py::{test}" in planted
    assert f"FLAKY test_planted.py::{test}" not in planted
    first, _, again = planted.partition(f"_ {test} _")[2].partition("Rerun alone, exit code 1")
    assert failure in first
    assert failure in again


def test_the_last_line_is_pytests_summary(planted: str) -> None:
    assert re.fullmatch(r"2 failed, 3 passed, 4 flaky in [\d.]+s( \([\d:]+\))?", planted.strip().splitlines()[-1])
    assert len(re.findall(r"^\d+ (passed|failed)", planted, re.MULTILINE)) == 1


def test_what_the_last_test_of_a_worker_leaves_open_fails_the_run(tmp_path: Path) -> None:
    code, output = run(tmp_path, "def test_leaks_a_cycle():\n    Leak()\n", "-n1")
    assert code == 1, output
    assert "\nFAILED test_planted.py::test_leaks_a_cycle" in output or "\nERROR test_planted" in output


def test_a_passing_run_reruns_nothing(tmp_path: Path) -> None:
    code, output = run(tmp_path, "def test_passes():\n    pass\n")
    assert code == 0, output
    assert "Rerunning" not in output
    assert output.strip().splitlines()[-1].startswith("1 passed in ")


def test_an_error_of_collection_is_reported(tmp_path: Path) -> None:
    code, output = run(tmp_path, "import nothing_of_this_name\n\ndef test_passes():\n    pass\n", "-n1")
    assert code not in {0, 5}
    assert "No module named 'nothing_of_this_name'" in output
    assert "Rerunning" not in output


def test_many_failures_are_not_rerun(tmp_path: Path) -> None:
    program = "@pytest.mark.parametrize('n', range(31))\ndef test_fails(n):\n    assert False\n"
    code, output = run(tmp_path, program)
    assert code == 1, output
    assert "Rerunning" not in output
    assert output.strip().splitlines()[-1].startswith("31 failed in ")
