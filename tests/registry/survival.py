"""Register many schemas, kill broker and registry with SIGKILL, start them again, and find every schema.

python -m tests.registry.survival --schemas 10000
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_THREADS = 4


class Process:
    """A command of ottla that tells its address in its first line."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "ottla", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self.line = self._process.stdout.readline()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


def start(directory: Path, port: int = 0) -> tuple[Process, Process, str, str]:
    """A broker and a registry, the address of the broker and the URL of the registry."""
    broker = Process("broker", "--data-dir", str(directory), "--listen", f"127.0.0.1:{port}")
    address = broker.line.split(" listening on ")[1].split(" ")[0]
    registry = Process("registry", "-b", address, "--listen", "127.0.0.1:0")
    return broker, registry, address, registry.line.split(" listening on ")[1].split(" ")[0]


def schema(number: int) -> str:
    return json.dumps({"type": "record", "name": f"R{number}", "fields": [{"name": "id", "type": "long"}]})


def calls(url: str, requests: list[tuple[str, str, Any]]) -> list[tuple[str, Any]]:
    """Send requests over one connection and return their paths with the answers."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    found = []
    for method, path, body in requests:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        found.append((path, json.loads(answer.read())))
    connection.close()
    return found


def spread(url: str, requests: list[tuple[str, str, Any]]) -> list[tuple[str, Any]]:
    parts = [requests[number::_THREADS] for number in range(_THREADS)]
    with ThreadPoolExecutor(_THREADS) as pool:
        return [one for found in pool.map(lambda part: calls(url, part), parts) for one in found]


def run(directory: Path, count: int, rounds: int = 2) -> None:
    """Kill `rounds` times while schemas are registered; all that were answered must be there."""
    ids: dict[str, int] = {}
    port = 0
    for turn in range(rounds + 1):
        broker, registry, address, url = start(directory, port)
        port = int(address.rpartition(":")[2])
        try:
            everything = calls(url, [("GET", "/schemas", None)])[0][1]
            assert {one["subject"]: one["id"] for one in everything} == ids, "schemas are missing after the restart"
            assert len({one["schema"] for one in everything}) == len(everything) == len(ids)
            if turn < rounds:
                numbers = range(turn * count // rounds, (turn + 1) * count // rounds)
                begun = time.monotonic()
                parts = [("POST", f"/subjects/s{number}/versions", {"schema": schema(number)}) for number in numbers]
                for path, answer in spread(url, parts):
                    ids[path.split("/")[2]] = answer["id"]
                seconds = time.monotonic() - begun
                print(f"round {turn + 1}: {len(numbers)} schemas in {seconds:.1f} s, then kill -9", flush=True)
        finally:
            registry.kill()
            broker.kill()
    assert sorted(ids.values()) == list(range(1, count + 1))
    print(f"{count} schemas survived {rounds} kills of broker and registry")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--schemas", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run(Path(directory), args.schemas, args.rounds)


if __name__ == "__main__":
    main()
