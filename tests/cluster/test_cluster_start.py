"""``ottla cluster start``: a cluster in one command, until Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.cluster.ports import free_port


@contextmanager
def started(data_dir: Path, port: int, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and what it has printed when the cluster is ready."""
    command = ["cluster", "start", "--data-dir", str(data_dir), "--listen-port", str(port), *arguments]
    with subprocess.Popen(
        [sys.executable, "-m", "ottla", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        try:
            yield process, said
        finally:
            process.kill()


def stopped(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C, and return what the command told on stderr."""
    process.send_signal(signal.SIGINT)
    told: str = process.communicate(timeout=60)[1]
    assert process.returncode == 0, told
    return told


def test_a_cluster_is_started_stopped_and_started_again(tmp_path: Path) -> None:
    port = free_port()
    servers = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    options = ("--brokers", "2", "--racks", "a,b", "--override", "num.partitions=3")
    with started(tmp_path, port, *options) as (process, said):
        assert "cluster of 2 brokers ready in" in said
        assert f"connect clients to {servers}" in said
        assert re.search(rf"broker 2 +127\.0\.0\.1:{port + 1} +pid \d+", said)
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics(NewTopic("orders"))
            partitions = admin.describe_topics("orders")["orders"].partitions
            assert (len(partitions), len(partitions[0].replicas)) == (3, 2)
            assert {node.rack for node in admin.describe_cluster().nodes} == {"a", "b"}
        with Producer(bootstrap_servers=servers, acks="all") as producer:
            producer.send("orders", b"an order", partition=0).get(30)
        told = stopped(process)
        steps = ["starting ZooKeeper", "starting brokers 1, 2", "stopping broker 2", "stopping broker 1", "stopped"]
        assert [told.index(step) for step in steps] == sorted(told.index(step) for step in steps)
    with started(tmp_path, port, *options) as (process, _):
        key = TopicPartition("orders", 0)
        with Admin(bootstrap_servers=servers) as admin:
            assert admin.list_offsets({key: "latest"})[key].offset == 1
        stopped(process)


def test_a_broker_that_dies_is_told_and_can_be_started_again(tmp_path: Path) -> None:
    with started(tmp_path, free_port(), "--brokers", "1") as (process, said):
        match = re.search(r"pid (\d+)", said)
        assert match is not None
        os.kill(int(match[1]), signal.SIGKILL)
        assert process.stderr is not None
        line = next(line for line in process.stderr if "killed" in line)
        assert line.startswith("broker 1 was killed by signal 9; start it again with: ottla broker --config")
        again = line.split(": ottla ")[1].split()
        with subprocess.Popen([sys.executable, "-m", "ottla", *again], stdout=subprocess.PIPE, text=True) as broker:
            assert broker.stdout is not None
            assert "listening on" in broker.stdout.readline()
            broker.terminate()
            assert broker.wait(60) == 0
        stopped(process)


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with started(tmp_path, port, "--brokers", "1") as (process, _):
            told = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another port" in told
