"""``ottla broker`` as a separate process, with the same address and data directory in all its lives."""

from __future__ import annotations

import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 60.0
CLEAN_MARKER = ".kafka_cleanshutdown"
_METRICS = re.compile(rb"metrics on http://\S+:(\d+)/metrics")
_READY = re.compile(rb"listening on \S+:(\d+) ")


class BrokerProcess:
    """A broker that can be killed and started again. `log_file` has the log lines of all its lives."""

    def __init__(
        self, data_dir: Path, log_file: Path, overrides: Mapping[str, str], config: Path | None = None
    ) -> None:
        """With `config`, a properties file, that has the address and the directory too."""
        self.data_dir = data_dir
        self._config = config
        self.log_file = log_file
        self.port = 0
        self.lives = 0
        self.start_seconds = 0.0
        self._overrides = dict(overrides)
        self._process: subprocess.Popen[bytes] | None = None
        self._output = b""

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the broker was never started"
        return self._process

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_clean_marker(self) -> bool:
        return (self.data_dir / CLEAN_MARKER).exists()

    def launch(self, doom: Sequence[str] = ()) -> None:
        """Start the process without waiting. With `doom`, the arguments of doomed.py, it will kill itself."""
        assert not self.is_alive, "the broker is already running"
        self.close()
        module = ["tests.crash.doomed", *doom, "--"] if doom else ["ottla"]
        command = [sys.executable, "-m", *module, "broker"]
        if self._config is not None:
            command += ["--config", str(self._config)]
        else:
            command += ["--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data_dir)]
        for name, value in self._overrides.items():
            command += ["--override", f"{name}={value}"]
        with self.log_file.open("ab") as log:
            log.write(f"--- life {self.lives}: {' '.join(command[2:6])}\n".encode())
            log.flush()
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log)
        self.lives += 1
        self._output = b""

    def start(self, doom: Sequence[str] = ()) -> None:
        """Start the process and wait until it serves; AssertionError with its last log lines if it does not."""
        begin = time.monotonic()
        self.launch(doom)
        if not self.wait_ready(START_SECONDS):
            code = self.process.poll()
            raise AssertionError(f"the broker did not start (exit code {code}): {self.last_words()}")
        self.start_seconds = time.monotonic() - begin

    def wait_ready(self, seconds: float) -> bool:
        """Wait for the line with its address; return False after a timeout or if the process has ended."""
        output = self.process.stdout
        assert output is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while (match := _READY.search(self._output)) is None:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return False
                part = output.read1(4096)  # type: ignore[attr-defined]
                if not part:
                    return False
                self._output += part
        self.port = int(match[1])
        return True

    @property
    def metrics_port(self) -> int:
        """The port that serves metrics."""
        match = _METRICS.search(self._output)
        assert match is not None, self._output
        return int(match[1])

    def wait_dead(self, seconds: float) -> bool:
        """Wait for the process to end by itself."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._reap()

    def terminate(self) -> int:
        """Stop it cleanly and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        if not self.wait_dead(STOP_SECONDS):
            self.kill()
            raise AssertionError(f"the broker did not stop within {STOP_SECONDS:g} s of SIGTERM: {self.last_words()}")
        return self._reap()

    def close(self) -> None:
        """End the process in any case."""
        if self.is_alive:
            self.kill()
        elif self._process is not None:
            self._reap()

    def _reap(self) -> int:
        code = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def last_words(self, lines: int = 12) -> str:
        return "\n".join(self.log_file.read_text("utf-8", "replace").splitlines()[-lines:])

    def log_of_this_life(self) -> str:
        return self.log_file.read_text("utf-8", "replace").rpartition("--- life ")[2]
