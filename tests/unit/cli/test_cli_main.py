"""The command line: version, help, addresses, exit codes, and the broker process."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.cli_results import Ottla

from ottla import __version__
from ottla.cli import main as cli_main
from ottla.records import KERNELS
from ottla.runtime.loops import LOOP_NAME

Start = Callable[..., "subprocess.Popen[bytes]"]


def test_version_says_what_is_in_use(ottla: Ottla) -> None:
    result = ottla("--version")
    assert result.code == 0
    assert result.lines[0] == f"ottla {__version__}"
    assert f"kernels     {KERNELS}" in result.lines
    assert f"event loop  {LOOP_NAME}" in result.lines
    assert any(line.startswith("python      3.") for line in result.lines)


@pytest.mark.parametrize("command", ["broker", "topics", "produce", "consume", "log", "perf"])
def test_every_command_has_help(ottla: Ottla, command: str) -> None:
    result = ottla(command, "--help")
    assert result.code == 0
    assert f"usage: ottla {command}" in result.text


def test_no_command_shows_the_commands(ottla: Ottla) -> None:
    result = ottla()
    assert result.code == 2
    assert "consume" in result.text


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["topcs", "list"], 2, r"unknown command 'topcs'; did you mean 'topics'\?"),
        (["topics", "list", "--frob"], 2, r"unrecognized arguments: --frob \(see ottla topics list --help\)"),
        (["consume", "orders", "--from-beginnin"], 2, "--from-beginnin; did you mean '--from-beginning'"),
        (["topics", "list", "-b", "http://localhost:9092"], 2, "write HOST:PORT .without the scheme."),
        (["topics", "list", "-b", "localhost:99999"], 2, "'localhost:99999' is not an address"),
        (["topics", "list", "-b", ","], 2, "no address: write HOST:PORT"),
        (["topics", "list", "-b", "no-such-host.invalid:9092"], 1, "cannot resolve the host name"),
        (["broker"], 2, "use --data-dir DIR"),
        (["broker", "--data-dir", "{dir}", "--listen", "nonsense"], 2, "'nonsense' is not an address"),
        (["broker", "--data-dir", "{dir}", "--override", "num.partition=3"], 1, r"[Dd]id you mean num\.partitions\?"),
        (["broker", "--data-dir", "{dir}", "--override", "num.partitions=x"], 1, r"num\.partitions"),
        (["broker", "--config", "{dir}/missing.properties"], 1, r"missing\.properties: No such file"),
        (["broker", "--config", "{file}"], 1, r"server\.properties, line 2: .*num\.partitions"),
        (["broker", "--data-dir", "{file}", "--listen", "127.0.0.1:0"], 1, r"server\.properties"),
    ],
)
def test_mistakes_are_told_in_one_line(ottla: Ottla, tmp_path: Path, args: list[str], code: int, message: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# mine\nnum.partitions=many\n")
    result = ottla(*(arg.format(dir=tmp_path / "data", file=file) for arg in args))
    assert (result.code, result.out) == (code, b"")
    assert result.err.count("\n") == 1, result.err
    assert re.search(message, result.err), result.err


def test_an_address_where_nobody_listens_is_named(ottla: Ottla) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        result = ottla("topics", "list", "-b", address)
    assert result.code == 1
    assert f"nothing listens at {address}" in result.err


def test_a_bug_is_one_line_too_with_the_traceback_on_demand(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(cli_main, "_run", broken)
    result = ottla("topics", "list")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "unexpected ZeroDivisionError: of all things" in result.err
    monkeypatch.setenv("OTTLA_DEBUG", "1")
    assert "Traceback" in ottla("topics", "list").err


def test_help_is_quick_because_it_loads_no_protocol() -> None:
    code = (
        "import sys; from ottla.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('ottla.protocol' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


# The broker's process.


def ready(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """The broker's output line, and the address in it."""
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    match = re.search(r"listening on (\S+:\d+) ", line)
    assert match is not None, line + (process.stderr.read().decode() if process.stderr else "")
    return line, match[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_broker_says_where_it_listens_and_stops_cleanly(
    start: Start, ottla: Ottla, tmp_path: Path, number: signal.Signals
) -> None:
    process = start("broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    line, address = ready(process)
    assert f"{KERNELS} kernels" in line
    assert LOOP_NAME in line
    assert str(tmp_path / "data") in line
    assert ottla("topics", "create", "orders", "-b", address).code == 0
    assert ottla("produce", "orders", "-b", address, stdin=b"kept\n").code == 0
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b""), err
    again = start("broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    _, address = ready(again)
    assert ottla("consume", "orders", "-b", address, "--from-beginning", "-n", "1").out == b"kept\n"


def test_a_second_broker_on_the_same_directory_is_refused(start: Start, tmp_path: Path) -> None:
    first = start("broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    ready(first)
    second = start("broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    out, err = second.communicate(timeout=30)
    assert (second.returncode, out) == (1, b"")
    message = err.decode().splitlines()[-1]
    assert "another broker" in message
    assert str(tmp_path) in message
    assert first.poll() is None


def test_an_address_in_use_is_refused(start: Start, tmp_path: Path) -> None:
    _, address = ready(start("broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "a")))
    second = start("broker", "--listen", address, "--data-dir", str(tmp_path / "b"))
    _, err = second.communicate(timeout=30)
    assert second.returncode == 1
    assert address in err.decode().splitlines()[-1]


def test_the_file_the_overrides_and_the_options_count_in_this_order(start: Start, ottla: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"num.partitions=2\nlog.retention.ms=1000\nlog.dirs={tmp_path}/wrong\nlisteners=PLAINTEXT://:1\n")
    process = start(
        "broker", "--config", str(file), "--override", "num.partitions=4",
        "--data-dir", str(tmp_path / "right"), "--listen", "127.0.0.1:0", "--log-format", "json",
    )  # fmt: skip
    _, address = ready(process)
    created = ottla("topics", "create", "orders", "-b", address)
    assert created.text == "created topic orders: 4 partitions, replication factor 1\n"
    described = ottla("topics", "describe", "orders", "-b", address).text
    assert "retention.ms=1000  (from the broker's configuration)" in described
    assert (tmp_path / "right").is_dir()
    assert not (tmp_path / "wrong").exists()
    process.terminate()
    _, err = process.communicate(timeout=30)
    assert all(line.startswith("{") for line in err.decode().splitlines())


def test_metrics_are_served_where_the_line_says(start: Start, tmp_path: Path) -> None:
    listen = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
    line, _ = ready(start("broker", *listen, "--data-dir", str(tmp_path)))
    match = re.search(r"metrics on (http://127\.0\.0\.1:\d+/metrics)", line)
    assert match is not None, line
    with urllib.request.urlopen(match[1], timeout=20) as response:
        assert b"# TYPE" in response.read()


def test_perf_checks_every_record_and_sums_up(start: Start, tmp_path: Path) -> None:
    process = start("perf", "--seconds", "1", "--producers", "2", "--partitions", "2", "--data-dir", str(tmp_path))
    out, err = process.communicate(timeout=90)
    text = out.decode()
    assert process.returncode == 0, err
    produced, consumed = re.search(r"([\d,]+) produced, ([\d,]+) consumed: each exactly once", text).groups()  # type: ignore[union-attr]
    assert produced == consumed
    assert "MB/s" in text
    assert re.search(r"perf-readers: 1 \+ 1 partitions, final lag 0", text)
    assert re.search(r"p50 [\d.]+ ms, p99 [\d.]+ ms", text)
    assert str(tmp_path) in text
    assert list((tmp_path / "data").glob("perf-*/*.log"))


def test_perf_does_not_touch_a_directory_that_is_in_use(ottla: Ottla, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    result = ottla("perf", "--data-dir", str(tmp_path))
    assert result.code == 1
    assert f"{tmp_path} is not empty" in result.err
