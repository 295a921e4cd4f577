"""``python -m ottla.testing``: a broker for the tests of a program in any language.

It prints the address for clients, then the address that takes orders for faults (docs/testing.md), each on its own
line. It ends with the process that started it, even if that is killed, so a CI job leaves nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from ottla.broker.broker import Broker
from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.values import NewTopic
from ottla.errors import OttlaError

_POLL_SECONDS = 0.1
_DESCRIPTION = """Start a broker for the tests of a program in any language. It prints the address for clients, then the
address for faults (docs/testing.md). It ends with the process that started it."""


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    parent = os.getppid()
    stopped: list[int] = []
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda number, _: stopped.append(number))
    try:
        with _broker(args) as broker:
            _tell(broker, as_json=args.json)
            while not stopped and os.getppid() == parent:
                time.sleep(_POLL_SECONDS)
    except OttlaError as error:
        sys.stderr.write(f"ottla.testing: error: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ottla.testing", description=_DESCRIPTION)
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="default: a free port on loopback")
    parser.add_argument("--faults-listen", default="127.0.0.1:0", metavar="HOST:PORT", help="the address for faults")
    parser.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="a broker config; repeatable"
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="create a topic; repeatable"
    )
    parser.add_argument("--manual-clock", action="store_true", help="time passes only by POST /clock")
    parser.add_argument("--snapshot", type=Path, metavar="DIR", help="start with what broker.snapshot(DIR) has stored")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of two lines")
    return parser


@contextmanager
def _broker(args: argparse.Namespace) -> Iterator[Broker]:
    config = {"ottla.faults.listener": args.faults_listen}
    for setting in args.config:
        name, equals, value = setting.partition("=")
        if not equals:
            raise OttlaError(f"--config {setting}: write NAME=VALUE")
        config[name] = value
    clock: Literal["manual"] | None = "manual" if args.manual_clock else None
    with Broker(listen=args.listen, config=config, clock=clock, from_snapshot=args.snapshot) as broker:
        _create(broker, args.topic)
        yield broker


def _create(broker: Broker, topics: list[str]) -> None:
    if not topics:
        return
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for topic in topics:
            name, _, partitions = topic.partition(":")
            if partitions and not partitions.isdecimal():
                raise OttlaError(f"--topic {topic}: write NAME:PARTITIONS with a number")
            admin.create_topics(NewTopic(name, int(partitions)) if partitions else NewTopic(name))


def _tell(broker: Broker, *, as_json: bool) -> None:
    assert broker.faults_address is not None
    faults = "http://{}:{}".format(*broker.faults_address)
    told = json.dumps({"bootstrap_servers": broker.bootstrap_servers, "faults": faults})
    sys.stdout.write(f"{told}\n" if as_json else f"{broker.bootstrap_servers}\n{faults}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
