"""``ottla cluster start``: ZooKeeper and brokers as processes, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from argparse import Namespace
from pathlib import Path
from types import FrameType

from ottla.cli.options import UsageError, broker_settings, parse_setting, positive
from ottla.cli.session import PATIENCE_SECONDS
from ottla.cli.terminal import plural
from ottla.cluster.cluster import Cluster
from ottla.cluster.member import ClusterBroker

DEFAULT_PORT = 9092
_LAST_PORT = 65_535
_WATCH_SECONDS = 0.2
_EPILOG = """\
examples:
  ottla cluster start --brokers 3 --data-dir ./cluster
  ottla cluster start --brokers 3 --data-dir ./cluster --racks a,b,c --override num.partitions=6
  ottla cluster start --brokers 1 --data-dir ./cluster --zookeeper zk1:2181,zk2:2181/ottla

The brokers use the ports 9092, 9093, ... Topics get three replicas unless they say otherwise, and two of them must be
in sync (min.insync.replicas). Log lines are in DIR/logs. If a broker dies, start it again with
  ottla broker --config DIR/broker-N.properties
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--brokers", type=positive, default=3, metavar="N", help="how many brokers (default: 3)")
    parser.add_argument(
        "--data-dir", type=Path, required=True, metavar="DIR", help="the directory for all data; created if missing"
    )
    parser.add_argument(
        "--listen-port",
        type=positive,
        default=DEFAULT_PORT,
        metavar="PORT",
        help=f"the port of the first broker; the others get the next ones (default: {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/PATH]",
        help="use this ZooKeeper (default: start one, which needs PySpark and Java)",
    )
    parser.add_argument("--racks", metavar="RACK,...", help="the rack of each broker")
    parser.add_argument(
        "--override",
        action="append",
        type=parse_setting,
        metavar="NAME=VALUE",
        help="a config of all brokers by Kafka's name, such as num.partitions=3; repeatable",
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    racks = None if args.racks is None else [rack.strip() for rack in args.racks.split(",")]
    if racks is not None and len(racks) != args.brokers:
        raise UsageError(f"--racks has {plural(len(racks), 'rack')} for {plural(args.brokers, 'broker')}")
    if args.listen_port + args.brokers - 1 > _LAST_PORT:
        raise UsageError(f"there are no {args.brokers} ports from {args.listen_port} on: use a smaller --listen-port")
    stopped = _until_signal()
    begin = time.monotonic()
    cluster = Cluster(
        args.brokers,
        args.data_dir,
        config=broker_settings(args.override),
        zookeeper=args.zookeeper,
        racks=racks,
        port=args.listen_port,
        isolation=False,
        progress=_say,
    )
    with cluster:
        print(_ready(cluster, args, time.monotonic() - begin), flush=True)
        _watch(cluster, args.data_dir, stopped)
        _say("stopping")
    _say("stopped")
    return 0


def _until_signal() -> threading.Event:
    """An event that Ctrl-C or SIGTERM sets. One more signal after a second ends everything at once."""
    stopped = threading.Event()
    first: list[float] = []

    def received(number: int, _: FrameType | None) -> None:
        if first and time.monotonic() > first[0] + PATIENCE_SECONDS:
            os._exit(128 + number)
        first.append(time.monotonic())
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, received)
    return stopped


def _ready(cluster: Cluster, args: Namespace, seconds: float) -> str:
    zookeeper = args.zookeeper or cluster.zookeeper.address
    lines = [f"cluster of {plural(args.brokers, 'broker')} ready in {seconds:.1f} s"]
    lines += [f"  zookeeper  {zookeeper}"]
    lines += [f"  broker {broker.id:<3} {broker.address}  pid {broker.pid}" for broker in cluster.brokers.values()]
    lines += [f"  log lines  {cluster.data_dir / 'logs'}"]
    lines += [f"connect clients to {cluster.bootstrap_servers}; Ctrl-C stops everything"]
    return "\n".join(lines)


def _watch(cluster: Cluster, data_dir: Path, stopped: threading.Event) -> None:
    """Wait for a signal, and tell when a broker dies."""
    dead: set[int] = set()
    while not stopped.wait(_WATCH_SECONDS):
        for broker in cluster.brokers.values():
            if broker.id not in dead and broker.state == "stopped":
                dead.add(broker.id)
                again = f"ottla broker --config {data_dir / f'broker-{broker.id}.properties'}"
                _say(f"{_died(broker)}; start it again with: {again}")


def _died(broker: ClusterBroker) -> str:
    code = broker.exit_code
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return f"broker {broker.id} {how}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
