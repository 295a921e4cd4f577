"""``ottla console``, ``ottla broker --console`` and ``Broker(console=True)``: what starts, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import ottla
import ottla.errors
from ottla.cli.main import main


def _address(line: str) -> str:
    return line.partition("console on ")[2].split()[0].rstrip(";)")


def _run(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "ottla", *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("command", ["console", "broker"])
def test_the_commands_serve_the_console(command: str, broker: ottla.Broker, tmp_path: Path) -> None:
    if command == "console":
        arguments = ["console", "-b", broker.bootstrap_servers, "--listen", "127.0.0.1:0"]
    else:
        arguments = ["broker", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0"]
    process = _run(*arguments)
    assert process.stdout is not None
    with process:
        try:
            page = httpx.get(_address(process.stdout.readline()))
            assert (page.status_code, "Overview" in page.text) == (200, True)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_broker_in_a_program_has_a_console() -> None:
    with ottla.Broker(console=True, registry=True) as broker:
        assert httpx.get(broker.console_url).status_code == 200
    with ottla.Broker() as broker, pytest.raises(ottla.OttlaError, match=r"start it with Broker\(console=True\)"):
        print(broker.console_url)
    with pytest.raises(ottla.errors.ConfigError, match="console must be True or False"):
        ottla.Broker(console="127.0.0.1:8080")  # type: ignore[arg-type]


def test_what_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str], broker: ottla.Broker) -> None:
    def told(*arguments: str) -> tuple[int, str]:
        code = main(["console", *arguments])
        return code, capsys.readouterr().err

    assert told("--listen", "0.0.0.0:0")[0] == 2
    code, text = told("--pipelines", str(tmp_path), str(tmp_path / "none.toml"))
    assert (code, "none.toml does not exist" in text) == (2, True)
    code, text = told("--token-file", str(tmp_path / "none"))
    assert (code, "make one with: python3 -c" in text) == (2, True)
    # The advice works word for word.
    subprocess.run(["sh", "-c", text.partition("make one with: ")[2]], check=True)
    assert len((tmp_path / "none").read_text().strip()) >= 40
    (tmp_path / "short").write_text("secret\n")
    assert "at least 16 characters" in told("--token-file", str(tmp_path / "short"))[1]
    assert "security.protocol=SASL_SSL" in told("--users")[1]
    code, text = told("--listen", broker.bootstrap_servers)
    assert (code, "choose another port with --listen" in text) == (1, True)


def test_what_the_broker_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--data-dir", str(tmp_path), "--console", "0.0.0.0:8080"]) == 2
    assert "ottla console --listen 0.0.0.0:8080 --token-file FILE" in capsys.readouterr().err


def test_missing_packages_are_named(tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('no', name='starlette')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "ottla", "console", "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'ottla[console]'" in done.stderr


OTHERS = "pyspark py4j sqlglot pyarrow fastavro jsonschema kazoo httpx cryptography jwt trustme pandas numpy"
ALONE = f"""
import sys, urllib.request

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OTHERS.split()}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
import ottla
from ottla.console.pages import pages

with ottla.Broker(console=True) as broker:
    print(*(urllib.request.urlopen(broker.console_url + page.path).status for page in pages()))
"""


def test_every_page_opens_with_the_packages_of_the_console_alone() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"200"}
