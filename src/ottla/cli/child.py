"""A broker in a child process, for commands that need one."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ottla.errors import OttlaError

START_SECONDS = 30
STOP_SECONDS = 30
_READY = re.compile(r"listening on (?P<host>\S+):(?P<port>\d+) ")


class ChildBroker:
    """``ottla broker`` on a free port, as an async context manager. It logs to `log_file`."""

    def __init__(self, data_dir: Path, log_file: Path, config: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.log_file = log_file
        self.config = dict(config or {})
        self.address = ("", 0)
        self.start_seconds = 0.0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not started"
        return self._process.pid

    async def __aenter__(self) -> ChildBroker:
        command = [
            sys.executable,
            "-m",
            "ottla",
            "broker",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            str(self.data_dir),
        ]
        if self.config:
            file = self.log_file.with_suffix(".properties")
            file.write_text("".join(f"{name}={value}\n" for name, value in self.config.items()))
            command += ["--config", str(file)]
        begin = time.monotonic()
        with self.log_file.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        try:
            self.address = await self._ready()
        except BaseException:
            await self.stop()
            raise
        self.start_seconds = time.monotonic() - begin
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> int:
        """Stop the broker, killing it after a timeout; returns the exit code."""
        process = self._process
        assert process is not None, "the broker is not started"
        if process.returncode is None:
            process.terminate()
        try:
            return await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            return await process.wait()

    async def _ready(self) -> tuple[str, int]:
        assert self._process is not None, "the broker is not started"
        output = self._process.stdout
        assert output is not None, "stdout is a pipe"
        try:
            line = await asyncio.wait_for(output.readline(), START_SECONDS)
        except TimeoutError:
            raise OttlaError(f"the broker was not ready after {START_SECONDS} s; its log is {self.log_file}") from None
        match = _READY.search(line.decode("utf-8", "replace"))
        if match is None:
            raise OttlaError(f"the broker did not start: {self._last_words()}")
        return match["host"].strip("[]"), int(match["port"])

    def _last_words(self) -> str:
        lines = self.log_file.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"

    def resident_bytes(self) -> int | None:
        """The resident memory, if /proc is available."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float | None:
        """The CPU time used, if /proc is available."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
