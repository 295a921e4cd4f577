"""``ottla console``: serve the web console until SIGTERM or Ctrl-C.

stdout gets one line with the address, for people and scripts. Log lines go to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from argparse import Namespace
from pathlib import Path
from urllib.parse import urlsplit

from ottla import __version__
from ottla.broker.logs import configure_logging
from ottla.cli.options import (
    DEFAULT_BOOTSTRAP,
    UsageError,
    add_bootstrap_option,
    client_config,
    format_addresses,
    parse_addresses,
    parse_listen,
)
from ottla.cli.session import run as run_on_loop
from ottla.cli.session import stop_on_signals
from ottla.config import parse_address
from ottla.console.settings import Settings
from ottla.console.starting import console_server
from ottla.errors import ConfigError

DEFAULT_LISTEN = "127.0.0.1:8080"
_EPILOG = """\
examples:
  ottla console                                       pages for the broker on 127.0.0.1:9092
  ottla console -b kafka-1:9092 --read-only --registry http://127.0.0.1:8081
  ottla console --pipelines orders.toml pipelines/     with the pages of these pipelines
  ottla console --listen 0.0.0.0:8080 --token-file console.token
  ottla console --listen 0.0.0.0:8080 --users --command-config client.properties

Only this machine reaches 127.0.0.1. For others the console asks for a token, or for a user of the brokers, who then may
do there what the brokers allow. Requires pip install 'ottla[console]'. docs/console.md has the details.
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
    parser.add_argument("--read-only", action="store_true", help="show everything, change nothing")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="ask for the token in this file")
    parser.add_argument("--users", action="store_true", help="ask for a user of the brokers and the password")
    parser.add_argument("--registry", type=_url, metavar="URL", help="a schema registry, to show values with schemas")
    parser.add_argument(
        "--pipelines",
        nargs="+",
        action="extend",
        type=Path,
        default=[],
        metavar="PATH",
        help="pipelines to show: files, or directories with .toml files",
    )
    parser.set_defaults(run=run)


def _url(text: str) -> str:
    if urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).netloc:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as http://127.0.0.1:8081")
    return text


def run(args: Namespace) -> int:
    configure_logging("text", "INFO")
    logging.getLogger("ottla.clients").setLevel(logging.ERROR)  # The pages say that brokers cannot be reached.
    run_on_loop(_serve(_settings(args)))
    return 0


def _settings(args: Namespace) -> Settings:
    host, port = args.listen
    try:
        return Settings(
            config=client_config(args),
            host=host,
            port=port,
            read_only=args.read_only,
            token=None if args.token_file is None else _token(args.token_file),
            users=args.users,
            registry=args.registry,
            pipelines=tuple(map(str, _pipelines(args.pipelines))),
            arguments=_arguments(args),
        )
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _arguments(args: Namespace) -> tuple[str, ...]:
    """The options with which other commands reach the same cluster."""
    given: list[str] = []
    if args.bootstrap_server != parse_addresses(DEFAULT_BOOTSTRAP):
        given += ["--bootstrap-server", ",".join(format_addresses(args.bootstrap_server))]
    if args.command_config is not None:
        given += ["--command-config", str(args.command_config)]
    return tuple(given)


def _pipelines(paths: list[Path]) -> list[Path]:
    for path in paths:
        if not path.exists():
            raise UsageError(f"--pipelines: {path} does not exist")
    # The pages show commands that are copied into other shells.
    return [path.absolute() for path in paths]


def _token(path: Path) -> str:
    make = f"python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > {path}"
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise UsageError(f"--token-file: cannot read {path} ({error.strerror}); make one with: {make}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--token-file: {path} is not a text file; make one with: {make}") from None
    if not token.isascii() or not token.isprintable() or not token:
        raise UsageError(f"--token-file: {path} must have one line of ASCII characters; make one with: {make}")
    return token


async def _serve(settings: Settings) -> None:
    stopped = asyncio.Event()
    stop_on_signals((signal.SIGTERM, signal.SIGINT), stopped.set)
    server = console_server(settings)
    await server.start()
    try:
        mode = ", read-only" if settings.read_only else ""
        print(f"ottla {__version__} console on {server.url} (brokers {settings.bootstrap}{mode})", flush=True)
        await stopped.wait()
    finally:
        await server.stop()
