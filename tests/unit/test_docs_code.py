"""The programs in the docs run: each block after ``<!-- runs -->``, in order, with one broker per page."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla import Broker
from ottla.cluster.ports import free_port

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("tutorial.md", "how-to.md", "testing.md", "migration.md", "security.md")
RUNS = re.compile(r"<!-- runs -->\n```python\n(.*?)```", re.DOTALL)
ANY = re.compile(r"```python\n(.*?)```", re.DOTALL)
ADDRESS = "localhost:9092"
LOGGED = ("giving up a record", "User:alice may not")


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run(page: str, tmp_path: Path) -> None:
    blocks = RUNS.findall((DOCS / page).read_text())
    assert blocks
    with Broker(group_initial_rebalance_delay_ms=0) as broker:
        # One process for all, because starting Python takes longer than the programs.
        script = tmp_path / "page.py"
        programs = [block.replace(ADDRESS, broker.bootstrap_servers) for block in blocks]
        lines = [f"exec(compile({code!r}, 'block {number}', 'exec'), {{}})" for number, code in enumerate(programs)]
        script.write_text("\n".join(lines))
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" or any(each in done.stderr for each in LOGGED)


def test_the_commands_that_secure_a_broker(tmp_path: Path) -> None:
    page = (DOCS / "security.md").read_text()
    port = str(free_port())
    scripts = {}
    for name in ("prepare", "use"):
        (text,) = re.findall(rf"<!-- shell: {name} -->\n```sh\n(.*?)```", page, re.DOTALL)
        scripts[name] = text.replace("9093", port)
    install, prepare = scripts["prepare"].split("\n", 1)
    assert install == "pip install 'ottla[security]'"
    prepare, start = prepare.strip().rsplit("\n", 1)
    assert "secret" not in _shell(prepare, "secret of admin\n", tmp_path)
    with subprocess.Popen(
        ["bash", "-c", f"exec {start}"], cwd=tmp_path, env=_environment(), stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        try:
            assert "listening" in broker.stdout.readline()
            said = _shell(scripts["use"], "secret of admin\nsecret of etl\n", tmp_path)
        finally:
            broker.terminate()
    assert "yes: User:etl may Write" in said


def _shell(commands: str, given: str, directory: Path) -> str:
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=directory,
        env=_environment(),
        input=given,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def _environment() -> dict[str, str]:
    """As in an activated environment."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_every_program_can_be_read() -> None:
    for page in DOCS.rglob("*.md"):
        for block in ANY.findall(page.read_text()):
            compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
