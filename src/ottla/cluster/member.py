"""One broker of a `Cluster`: a process, and the faults that can befall it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ottla import __version__
from ottla.broker.faults.face import Faults, Target
from ottla.cluster.faults import http_target
from ottla.cluster.network import Door, Network
from ottla.cluster.ports import free_port
from ottla.cluster.processes import ChildProcess
from ottla.errors import OttlaError

START_SECONDS = 60.0
STOP_SECONDS = 60.0
_POLL_SECONDS = 0.01
_READY = f"ottla {__version__} listening on "


class ClusterBroker:
    """A broker of a `Cluster`. Take it from ``cluster.brokers``, ``cluster.leader_of`` or ``cluster.controller``.

    >>> import ottla
    >>> with ottla.Cluster(brokers=3) as cluster:  # doctest: +SKIP
    ...     cluster.leader_of("orders", 0).kill()
    """

    def __init__(
        self,
        broker_id: int,
        directory: Path,
        config: Mapping[str, str],
        *,
        port: int | None,
        network: Network | None,
        has_faults: bool = False,
    ) -> None:
        self.id = broker_id
        self.rack = config.get("broker.rack")
        self.port = port or free_port()
        """The port for clients. It stays the same over restarts."""
        self.log_file = directory / "logs" / f"broker-{broker_id}.log"
        self._file = directory / f"broker-{broker_id}.properties"
        self._network = network
        self._door: Door | None = None
        own = self.port
        if network is not None:
            own = free_port()
            self._door = network.door(broker_id, ("127.0.0.1", own), self.port)
        self._config = {
            "log.dirs": str(directory / f"broker-{broker_id}"),
            **config,
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{own}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }
        self._control: Target | None = None
        if has_faults:
            address = self._config["ottla.faults.listener"] = f"127.0.0.1:{free_port()}"
            self._control = http_target(address)
        self.command = [sys.executable, "-m", "ottla"]
        """What starts `ottla` with arguments."""
        self._process: ChildProcess | None = None
        self._log_start = 0
        self._is_paused = False
        self._is_isolated = False

    def __repr__(self) -> str:
        return f"<broker {self.id} on {self.address}: {self.state}>"

    @property
    def address(self) -> str:
        """The address for clients, as ``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._running().pid

    @property
    def state(self) -> str:
        """``"running"``, ``"paused"``, ``"isolated"`` or ``"stopped"``."""
        if self._process is None or not self._process.is_running:
            return "stopped"
        return "paused" if self._is_paused else "isolated" if self._is_isolated else "running"

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that has ended by itself. A signal is a negative number."""
        return None if self._process is None else self._process.exit_code

    @property
    def data_dir(self) -> Path:
        """The directory of its logs."""
        return Path(self._config["log.dirs"].split(",")[0])

    # ── start and stop ────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start the broker and wait until it is ready. Does nothing if it runs."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the process, without waiting."""
        if self._process is not None and self._process.is_running:
            return
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        self._file.touch(mode=0o600)  # It may have passwords.
        self._file.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in self._config.items()))
        if self._network is not None and self._door is not None:
            self._network.open(self._door)
        command = [*self.command, "broker", "--config", str(self._file)]
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._process = ChildProcess(command, self.log_file)
        self._is_paused = False

    def await_ready(self) -> None:
        """Wait until a launched broker is ready."""
        try:
            self._wait(time.monotonic() + START_SECONDS)
        except BaseException:
            self.kill()
            raise
        if self._network is not None and self._door is not None:
            self._network.ready(self._door)

    def _wait(self, deadline: float) -> None:
        while _READY not in (said := self._said()):
            if not self._running().is_running:
                last = said.splitlines()[-1] if said else "it said nothing"
                raise OttlaError(f"broker {self.id} did not start: {last.removeprefix('ottla: error: ')}")
            if time.monotonic() > deadline:
                raise OttlaError(f"broker {self.id} was not ready after {START_SECONDS:g} s; see {self.log_file}")
            time.sleep(_POLL_SECONDS)

    def _said(self) -> str:
        """What the process has written so far."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace").strip()

    def stop(self) -> None:
        """Stop it with SIGTERM: it hands its leaderships over, and closes its logs. Does nothing if it is stopped."""
        if self._process is not None:
            self.resume()
            self._process.stop(STOP_SECONDS)
            self._gone()

    def kill(self) -> None:
        """End it with SIGKILL. Does nothing if it is stopped."""
        if self._process is not None:
            self._process.kill()
            self._gone()

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def _gone(self) -> None:
        self._process = None
        self._is_paused = False
        if self._network is not None and self._door is not None and not self._is_isolated:
            self._network.close(self._door)

    # ── faults ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def faults(self) -> Faults:
        """Faults for the requests that reach this broker: ``broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS")``."""
        return Faults(lambda: [self.control])

    @property
    def control(self) -> Target:
        """Runs operations of `ottla.broker.faults` in this broker."""
        if self._control is None:
            raise OttlaError("this cluster takes no orders for faults: use ottla.Cluster(..., faults=True)")
        self._running()
        return self._control

    def pause(self) -> None:
        """Freeze the process with SIGSTOP: connections stay open, but nothing is answered."""
        self._running().send(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Undo `pause`."""
        if self._is_paused:
            self._running().send(signal.SIGCONT)
            self._is_paused = False

    def isolate(self, *, clients: bool = True) -> None:
        """Cut it off from the other brokers, ZooKeeper and clients, silently, like a pulled network cable.

        With ``clients=False`` clients still reach it: a leader that nobody follows any more.
        """
        if self._network is None:
            raise OttlaError("the network of this cluster cannot be cut: use ottla.Cluster(..., isolation=True)")
        self._network.cut(self.id, clients=clients)
        self._is_isolated = True

    def rejoin(self) -> None:
        """Undo `isolate`. What was sent meanwhile arrives now."""
        if self._network is not None and self._is_isolated:
            self._network.mend(self.id)
            self._is_isolated = False
            if self._process is None and self._door is not None:
                self._network.close(self._door)

    def _running(self) -> ChildProcess:
        if self._process is None:
            raise OttlaError(f"broker {self.id} is stopped: start it with start()")
        return self._process


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
