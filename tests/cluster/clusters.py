"""Clusters for tests: as users start them, and with a network namespace for each broker."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from typing import Any
from unittest import mock

from ottla.cluster.cluster import Cluster
from ottla.cluster.member import ClusterBroker

PORT = 9092
_numbers = itertools.count(1)


class PlainCluster(Cluster):
    """A cluster whose brokers can be changed before they start."""

    def _add(self, rack: str | None = None) -> ClusterBroker:
        broker = super()._add(rack)
        self.prepare(broker)
        return broker

    def prepare(self, broker: ClusterBroker) -> None:
        """Change a broker before it starts."""


def why_no_namespaces() -> str | None:
    """Why this machine cannot have network namespaces; None if it can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and the command ip (iproute2)"
    name = f"ottla-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this machine does not let root create network namespaces"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None


class NamespaceCluster(PlainCluster):
    """Each broker is in a network namespace of its own, on a bridge. A cut takes its link down.

    Clients and ZooKeeper are on the bridge. Unlike the proxy of `Cluster`, a cut loses packets: TCP sends them again,
    later and later, and connections time out.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(isolation=False, **options)
        self._number = f"{os.getpid() % 30_000:x}{next(_numbers)}"
        self._subnet = f"10.{80 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self._bridge = f"ob{self._number}"
        self._namespaces: list[str] = []
        self._stack = contextlib.ExitStack()

    def start(self) -> NamespaceCluster:
        host = f"{self._subnet}.254"
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{host}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        self._stack.enter_context(mock.patch("ottla.cluster.zookeeper.HOST", host))
        try:
            super().start()
        except BaseException:
            self._remove()
            raise
        return self

    def stop(self) -> None:
        super().stop()
        self._remove()

    def _remove(self) -> None:
        self._stack.close()
        for name in self._namespaces:
            _ip("netns", "del", name)
        if self._namespaces:
            _ip("link", "del", self._bridge)
        self._namespaces.clear()

    def _add(self, rack: str | None = None) -> ClusterBroker:
        made = super()._add(rack)
        name, host = f"ob{self._number}-{made.id}", f"{self._subnet}.{made.id}"
        outer, inner = f"v{self._number}{made.id}", f"w{self._number}{made.id}"
        _ip("netns", "add", name)
        self._namespaces.append(name)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
        _ip("link", "set", outer, "master", self._bridge, "up")
        _ip("link", "set", inner, "netns", name)
        _ip("-n", name, "addr", "add", f"{host}/24", "dev", inner)
        _ip("-n", name, "link", "set", inner, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        broker = NamespaceBroker(made, name, host, outer)
        self._brokers[made.id] = broker
        return broker


class NamespaceBroker(ClusterBroker):
    """A broker in a network namespace."""

    def __init__(self, made: ClusterBroker, namespace: str, host: str, link: str) -> None:
        self.__dict__.update(made.__dict__)
        self._host = host
        self._link = link
        self._config["listeners"] = f"PLAINTEXT://{host}:{PORT}"
        self._config["advertised.listeners"] = f"PLAINTEXT://{host}:{PORT}"
        self.command = ["ip", "netns", "exec", namespace, *made.command]

    @property
    def address(self) -> str:
        return f"{self._host}:{PORT}"

    def isolate(self, *, clients: bool = True) -> None:
        """Take its link down. Clients do not reach it either."""
        _ip("link", "set", self._link, "down")
        self._is_isolated = True

    def rejoin(self) -> None:
        if self._is_isolated:
            _ip("link", "set", self._link, "up")
            self._is_isolated = False


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
