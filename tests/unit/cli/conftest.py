"""A broker, and the command, run in this process or as a child process."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.cli.cli_results import Ottla, Result

from ottla.broker.broker import Broker
from ottla.cli.main import main


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """An embedded broker, or the one that OTTLA_COMPAT_BOOTSTRAP names."""
    outside = os.environ.get("OTTLA_COMPAT_BOOTSTRAP")
    if outside:
        yield outside
        return
    with Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def ottla(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Ottla:
    """The command in this process: ``ottla("produce", "t", stdin=b"x")``."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", bootstrap)

    def call(*args: str, stdin: bytes = b"") -> Result:
        source = tmp_path / "stdin"
        source.write_bytes(stdin)
        with source.open() as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            handlers = logging.root.handlers[:]
            try:
                code = main(args)
            except SystemExit as ended:
                code = int(ended.code or 0)
            finally:
                # `ottla broker` sends log lines to the stderr of this one call.
                logging.root.handlers[:] = handlers
        captured = capfdbinary.readouterr()
        return Result(code, captured.out, captured.err.decode())

    return call


@pytest.fixture
def start(bootstrap: str) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """The command as a child process, stopped after the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def call(*args: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": bootstrap},
        )
        processes.append(process)
        return process

    yield call
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def topic(ottla: Ottla) -> str:
    """A topic with a unique name and three partitions."""
    name = f"cli-{uuid4().hex[:8]}"
    assert ottla("topics", "create", name, "--partitions", "3").code == 0
    return name
