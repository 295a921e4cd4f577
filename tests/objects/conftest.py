"""A real object store for tables of pipelines: Versity's S3 gateway. Run it with `make compat-s3`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.peer import free_port

from spark.conftest import active, admin, servers, spark, topics

__all__ = ["active", "admin", "servers", "spark", "topics"]

if not os.environ.get("OTTLA_S3"):
    collect_ignore_glob = ["test_*.py"]

GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
KEY, SECRET, BUCKET = "ottla", "a-secret-of-the-store", "lake"
STARTED_WITHIN = 20.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/objects/"):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.timeout(600))


class Store:
    """An S3 server with one bucket, whose objects are files."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program = program
        self.directory = directory / BUCKET
        self.directory.mkdir(parents=True)
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        access = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        command = [self._program, "--quiet", "--port", f"127.0.0.1:{self._port}", "posix", str(self.directory.parent)]
        self._process = subprocess.Popen(command, env={**os.environ, **access}, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + STARTED_WITHIN
        while not self._answers():
            assert self._process.poll() is None, f"{self._program} has ended"
            assert time.monotonic() < deadline, f"{self._program} does not answer"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url, timeout=1)
        except urllib.error.HTTPError:
            return True  # It asks for a signature.
        except OSError:
            return False
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, which Go builds unless it is on the PATH."""
    if found := shutil.which("versitygw"):
        return found
    if shutil.which("go") is None:
        pytest.skip("needs versitygw on the PATH, or Go to build it")
    directory = tmp_path_factory.mktemp("gateway")
    subprocess.run(["go", "install", GATEWAY], env={**os.environ, "GOBIN": str(directory)}, check=True)
    return str(directory / "versitygw")


@pytest.fixture
def store(gateway: str, tmp_path: Path) -> Iterator[Store]:
    store = Store(gateway, tmp_path / "buckets")
    store.start()
    yield store
    store.kill()
