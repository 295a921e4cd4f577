"""``ottla registry``: run a schema registry until SIGTERM or Ctrl-C.

stdout gets one line when the registry is ready, for people and scripts. Log lines go to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from argparse import Namespace
from pathlib import Path

from ottla import __version__
from ottla.broker.logs import configure_logging
from ottla.cli.options import UsageError, add_bootstrap_option, client_config, parse_listen
from ottla.cli.session import run as run_on_loop
from ottla.cli.session import stop_on_signals
from ottla.config import parse_address, parse_properties
from ottla.errors import OttlaError
from ottla.registry_server.server import DEFAULT_TOPIC, RegistryServer

DEFAULT_LISTEN = "127.0.0.1:8081"
_EPILOG = """\
examples:
  ottla registry                                      a registry on 127.0.0.1:8081 for the broker on 127.0.0.1:9092
  ottla registry -b kafka-1:9092 --listen 0.0.0.0:8081 --users registry-users.properties
  curl http://127.0.0.1:8081/subjects

It has the HTTP API of Confluent's registry, and keeps schemas in the topic _schemas of the cluster, in the same format.
Several registries can serve one topic. docs/registry.md has the details.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_bootstrap_option(parser)
    parser.add_argument(
        "--listen",
        type=parse_listen,
        default=parse_address(DEFAULT_LISTEN),
        metavar="HOST:PORT",
        help=f"the address to listen on (default: {DEFAULT_LISTEN}; port 0 picks a free port)",
    )
    parser.add_argument(
        "--topic", default=DEFAULT_TOPIC, metavar="NAME", help=f"the topic of the schemas (default: {DEFAULT_TOPIC})"
    )
    parser.add_argument(
        "--users", type=Path, metavar="FILE", help="ask for a name and a password; one name=password per line"
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="format of the log lines on stderr"
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    configure_logging(args.log_format, "INFO")
    logging.getLogger("ottla.clients").setLevel(logging.WARNING)  # Not every attempt to reach a broker.
    host, port = args.listen
    server = RegistryServer(client_config(args), host=host, port=port, topic=args.topic, users=_users(args.users))
    run_on_loop(_serve(server, args.topic))
    return 0


def _users(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        users = {name: str(value) for name, value in parse_properties(path.read_text()).items()}
    except OSError as error:
        raise UsageError(f"--users: cannot read {path} ({error.strerror})") from None
    if not users:
        raise UsageError(f"--users: {path} has no users; write one name=password per line")
    for name, password in users.items():
        if not password:
            raise UsageError(f"--users: {name} in {path} has no password; write {name}=password")
    return users


async def _serve(server: RegistryServer, topic: str) -> None:
    stopped = asyncio.Event()
    stop_on_signals((signal.SIGTERM, signal.SIGINT), stopped.set)
    try:
        await server.start()
    except OSError as error:
        raise OttlaError(f"cannot listen: {error.strerror or error}") from None
    try:
        print(f"ottla {__version__} schema registry listening on {server.url} (topic {topic})", flush=True)
        await stopped.wait()
    finally:
        await server.stop()
