"""What a local ZooKeeper says if something is missing or in its way."""

from __future__ import annotations

import importlib.util
import socket
from contextlib import closing
from pathlib import Path

import pytest

from ottla.cluster import zookeeper
from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.errors import OttlaError
from ottla.spark.java import NoJava


def test_pyspark_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(zookeeper, "find_java", lambda: Path("java"))
    with pytest.raises(OttlaError, match=r"the jars of PySpark, .*pip install 'ottla\[cluster,spark\]', or give"):
        LocalZooKeeper(tmp_path).start()


def test_java_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> Path:
        raise NoJava("no Java")

    monkeypatch.setattr(zookeeper, "find_java", no_java)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(OttlaError, match=r"requires Java, .*pip install 'ottla\[cluster,spark\]', or give"):
        LocalZooKeeper(tmp_path).start()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(NoJava):
        LocalZooKeeper(tmp_path).start()


def test_the_port_is_in_use(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OttlaError, match=f"ZooKeeper cannot listen on 127.0.0.1:{port}: Address already in use"):
            LocalZooKeeper(tmp_path, port).start()
