"""``ottla broker --console``: the console in the process of a broker, for this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ottla.broker.server import BrokerServer
from ottla.cli.options import UsageError
from ottla.config import BrokerConfig, parse_address
from ottla.console.settings import Settings, is_loopback
from ottla.console.starting import console_thread

if TYPE_CHECKING:
    from ottla.console.server import ConsoleThread

DEFAULT_LISTEN = "127.0.0.1:8080"
#: From the safest on.
PASSWORDS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


def add_console_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--console",
        nargs="?",
        const=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"serve the web console to this machine (default: {DEFAULT_LISTEN})",
    )


def check_console(listen: str, config: BrokerConfig) -> None:
    """Raise UsageError if the broker's console could not be reached safely, or could not reach the broker."""
    try:
        host, _ = parse_address(listen)
    except ValueError as error:
        raise UsageError(f"--console: {error}") from None
    if not is_loopback(host):
        raise UsageError(
            "--console is for this machine only: for others run "
            f"`ottla console --listen {listen} --token-file FILE` beside the broker"
        )
    _reachable(config)


def start_console(listen: str, server: BrokerServer) -> ConsoleThread:
    """Start the console of a broker that runs."""
    host, port = parse_address(listen)
    name, configs = _reachable(server.config)
    (found,) = [one for one in server.servers if one.name == name]
    broker = "127.0.0.1" if found.host in ("0.0.0.0", "::", "") else found.host
    address = f"[{broker}]:{found.port}" if ":" in broker else f"{broker}:{found.port}"
    return console_thread(
        Settings(
            config={"bootstrap.servers": address, **configs},
            host=host,
            port=port,
            users="sasl.mechanism" in configs,
            arguments=("--bootstrap-server", address),
        )
    )


def _reachable(config: BrokerConfig) -> tuple[str, dict[str, str]]:
    """A listener that needs no certificates, and the configs of its clients."""
    listeners = [config.listener(listener.name) for listener in config.listeners]
    for one in listeners:
        if one.protocol == "PLAINTEXT":
            return one.name, {}
    for one in listeners:
        mechanism = next((each for each in PASSWORDS if each in one.sasl_enabled_mechanisms), None)
        if one.protocol == "SASL_PLAINTEXT" and mechanism is not None:
            return one.name, {"security.protocol": one.protocol, "sasl.mechanism": mechanism}
    raise UsageError(
        "--console needs a listener without TLS: start the broker without it, and run "
        "`ottla console --command-config FILE` with the certificates that clients need"
    )
