"""A ZooKeeper server on this machine, from PySpark's jars and the Java that `ottla.spark` finds.

It is meant for tests, demos and development. A cluster of several machines uses an ensemble of its own.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import struct
import time
from pathlib import Path

from ottla.cluster.processes import ChildProcess
from ottla.errors import OttlaError
from ottla.spark.java import NoJava, find_java

HOST = "127.0.0.1"
START_SECONDS = 30.0
STOP_SECONDS = 10.0
_ANSWER_SECONDS = 0.1
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: All other jars of Spark would only cost memory.
_JARS = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "commons-io-*.jar",
)
_JAVA_OPTIONS = (
    "-Xms8m",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.preAllocSize=1024",
    "-Dzookeeper.snapCount=20000",
    "-Dslf4j.internal.verbosity=ERROR",
)
_CONFIG = """\
clientPort={port}
clientPortAddress={host}
dataDir={data}
# Half of the shortest session timeout.
tickTime=500
maxSessionTimeout=60000
maxClientCnxns=0
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
# A length each; then version, last zxid, timeout, session id, password; or a number and the type of the request.
_OPEN_SESSION = struct.pack(">iiqiqi16s", 44, 0, 0, 1000, 0, 16, b"")
_CLOSE_SESSION = struct.pack(">iii", 8, 1, -11)
_WHAT_TO_DO = "run  pip install 'ottla[cluster,spark]', or give the address of a ZooKeeper with --zookeeper"


class LocalZooKeeper:
    """A ZooKeeper server in a process of its own, on the loopback interface.

        with LocalZooKeeper(Path("data/zookeeper")) as server:
            zookeeper = ZooKeeper(server.address)

    Port 0 picks a free port. A later start uses the same port and the same data.
    """

    def __init__(self, data_dir: Path, port: int = 0) -> None:
        self.data_dir = data_dir
        self.port = port
        self._process: ChildProcess | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.data_dir / "zookeeper.log"

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def _running(self) -> ChildProcess:
        assert self._process is not None, "ZooKeeper is not started"
        return self._process

    def __enter__(self) -> LocalZooKeeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until it answers. Blocks for about a second."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the process, without waiting."""
        if self._process is not None:
            raise OttlaError(f"ZooKeeper at {self.address} is running already")
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.port = _free_port(self.port)
        config = self.data_dir / "zoo.cfg"
        config.write_text(_CONFIG.format(port=self.port, host=HOST, data=self.data_dir.absolute()))
        command = [str(_java()), *_JAVA_OPTIONS, "-cp", _class_path(), _MAIN, str(config)]
        self._process = ChildProcess(command, self.log_file)

    def await_ready(self) -> None:
        """Wait until a launched server answers."""
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop the server, if it runs."""
        if self._process is not None:
            self._process.stop(STOP_SECONDS)
            self._process = None

    def kill(self) -> None:
        """End the server as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def pause(self) -> None:
        """Let the server hang until `resume`."""
        self._running.send(signal.SIGSTOP)

    def resume(self) -> None:
        self._running.send(signal.SIGCONT)

    def resident_bytes(self) -> int | None:
        """The resident memory, if /proc is available."""
        return self._running.resident_bytes()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            code = self._running.exit_code
            if code is not None:
                raise OttlaError(f"ZooKeeper ended with exit code {code}: {self._last_words()}")
            if self._answers():
                return
            if time.monotonic() > deadline:
                raise OttlaError(f"ZooKeeper was not ready after {START_SECONDS:g} s; its output is in {self.log_file}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        """Whether a session can be opened. The server accepts connections before that."""
        try:
            with socket.create_connection((HOST, self.port), _ANSWER_SECONDS) as connection:
                connection.sendall(_OPEN_SESSION)
                if not connection.recv(4):
                    return False
                connection.sendall(_CLOSE_SESSION)
                return True
        except OSError:
            return False

    def _last_words(self) -> str:
        lines = self.log_file.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"it said nothing; is the data in {self.data_dir} that of ZooKeeper?"


def _free_port(port: int) -> int:
    """Return the port, or a free one for port 0. Raises OttlaError if something listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise OttlaError(f"ZooKeeper cannot listen on {HOST}:{port}: {error.strerror}") from None
        chosen: int = probe.getsockname()[1]
        return chosen


def _java() -> Path:
    try:
        return find_java()
    except NoJava:
        if os.environ.get("JAVA_HOME"):
            raise
        raise OttlaError(f"a local ZooKeeper requires Java, which is not installed: {_WHAT_TO_DO}") from None


def _class_path() -> str:
    found = importlib.util.find_spec("pyspark")
    places = [] if found is None else list(found.submodule_search_locations or [])
    for place in places:
        jars = [sorted(Path(place, "jars").glob(pattern)) for pattern in _JARS]
        if all(jars):
            return os.pathsep.join(str(each[-1]) for each in jars)
    raise OttlaError(f"a local ZooKeeper requires the jars of PySpark, which are not installed: {_WHAT_TO_DO}")
