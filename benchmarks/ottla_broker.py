"""Run our broker in its own process, with the interface of `benchmarks.apache_kafka`.

with OttlaBroker(config={"num.partitions": 3}) as broker:
    broker.bootstrap_servers, broker.pid, broker.data_dir
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from benchmarks.peer import HOST, Peer, Unavailable


class OttlaBroker(Peer):
    """`ottla broker` of this interpreter. Raises `Unavailable` if it is not installed."""

    name = "ottla"
    start_timeout = 30.0

    def prepare(self) -> None:
        problem = missing()
        if problem is not None:
            raise Unavailable(problem)
        lines = [f"{name}={value}" for name, value in self.config.items()]
        self._config_file.write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        config = ["--config", str(self._config_file)] if self.config else []
        listen = [] if "listeners" in self.config else ["--listen", f"{HOST}:{self.port}"]
        return [sys.executable, "-m", "ottla", "broker", *listen, "--data-dir", str(self.data_dir), *config]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONUNBUFFERED": "1"}

    @property
    def _config_file(self) -> Path:
        return self.work_dir / "server.properties"


def missing() -> str | None:
    """Return why this interpreter cannot run the broker, or None."""
    for module in ("ottla", "ottla.__main__"):
        if importlib.util.find_spec(module) is None:
            reason = f"no module {module}; use the venv that `make setup` makes"
            return f"{sys.executable} cannot run `python -m ottla broker`: {reason}"
    return None
