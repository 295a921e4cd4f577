"""``ottla broker``: run a broker until SIGTERM or Ctrl-C.

Settings in order of increasing priority: defaults, the file of --config, --override, other options such as --listen.
Log lines go to stderr. stdout gets one line when the broker is ready, for people and scripts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
from argparse import Namespace
from pathlib import Path

from ottla import __version__
from ottla.broker.logs import configure_logging, log_event
from ottla.broker.server import BrokerServer
from ottla.cli.broker_console import add_console_option, check_console, start_console
from ottla.cli.kernels import KERNELS
from ottla.cli.options import UsageError, broker_settings, not_negative, parse_setting
from ottla.cli.session import run as run_on_loop
from ottla.cli.session import stop_on_signals
from ottla.config import BrokerConfig, parse_address, parse_broker_properties
from ottla.errors import OttlaError
from ottla.runtime.loops import LOOP_NAME

logger = logging.getLogger("ottla.cli")

DEFAULT_LISTEN = "127.0.0.1:9092"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_EPILOG = """\
examples:
  ottla broker --data-dir ./data --console
  ottla broker --data-dir /tmp/scratch --listen 127.0.0.1:0 --override num.partitions=3
  ottla broker --config server.properties --metrics-listen 127.0.0.1:9404 --log-format json
  ottla broker --id 2 --zookeeper zk1:2181,zk2:2181,zk3:2181/ottla --rack b --listen 10.0.0.2:9092 --data-dir ./data
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "--listen",
        type=_address,
        metavar="HOST:PORT",
        help=f"the address for clients; port 0 picks a free port (default: {DEFAULT_LISTEN})",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="the directory for the logs; created if missing")
    parser.add_argument("--id", type=not_negative, metavar="N", help="the id of the broker (default: 1)")
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/PATH]",
        help="the ZooKeeper of the cluster to join (default: none, the broker is alone)",
    )
    parser.add_argument("--rack", help="the rack of the broker; replicas are spread over racks")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a file in the format of Kafka's server.properties")
    parser.add_argument(
        "--override",
        action="append",
        type=parse_setting,
        metavar="NAME=VALUE",
        help="a broker config by Kafka's name, such as num.partitions=3; repeatable",
    )
    parser.add_argument(
        "--metrics-listen", type=_address, metavar="HOST:PORT", help="serve Prometheus metrics on this address"
    )
    add_console_option(parser)
    parser.add_argument(
        "--log-format", choices=("text", "json"), help="format of the log lines on stderr (default: text)"
    )
    parser.add_argument("--log-level", type=str.upper, choices=_LEVELS, help="log level (default: INFO)")
    parser.set_defaults(run=run)


def _address(text: str) -> str:
    try:
        parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def run(args: Namespace) -> int:
    config = read_config(args)
    if args.console is not None:
        check_console(args.console, config)
    configure_logging("json" if config.ottla_log_format == "json" else "text", config.ottla_log_level)
    if config.ignored:
        log_event(
            logger,
            logging.WARNING,
            "ignoring configs that have no effect",
            names=", ".join(config.ignored),
        )
    run_on_loop(_serve(config, args.console))
    return 0


def read_config(args: Namespace) -> BrokerConfig:
    """Merge the options and the config file."""
    overrides = broker_settings(args.override)
    _check_directory(args.data_dir, overrides)
    overrides |= _named_options(args)
    text = _read(args.config) if args.config is not None else ""
    config = parse_broker_properties(text, source=str(args.config), overrides=overrides)
    if args.config is None and not config.is_clustered:
        # As in the file that Kafka ships: a first consumer should not wait for others.
        overrides = {"group.initial.rebalance.delay.ms": "0", **overrides}
        config = parse_broker_properties(text, source=str(args.config), overrides=overrides)
    if not {"log.dirs", "log.dir"} & config.given.keys():
        raise UsageError("no data directory: use --data-dir DIR, or set log.dirs in the file of --config")
    if "listeners" in config.given:
        return config
    return parse_broker_properties(
        text, source=str(args.config), overrides={**overrides, "listeners": f"PLAINTEXT://{DEFAULT_LISTEN}"}
    )


def _check_directory(given: Path | None, overrides: dict[str, str]) -> None:
    """Refuse two data directories, because the logs would silently be in the one of --data-dir."""
    for name, value in overrides.items():
        if given is not None and name.replace("_", ".") in ("log.dir", "log.dirs") and Path(value) != given:
            raise UsageError(f"the data directory is set twice: --data-dir {given} and --override {name}={value}")


def _named_options(args: Namespace) -> dict[str, str]:
    given = {
        "node.id": None if args.id is None else str(args.id),
        "zookeeper.connect": args.zookeeper,
        "broker.rack": args.rack,
        "listeners": f"PLAINTEXT://{args.listen}" if args.listen else None,
        "log.dirs": str(args.data_dir) if args.data_dir else None,
        "ottla.metrics.listener": args.metrics_listen,
        "ottla.log.format": args.log_format,
        "ottla.log.level": args.log_level,
    }
    return {name: value for name, value in given.items() if value is not None}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise OttlaError(f"{path} is not a UTF-8 text file") from None


async def _serve(config: BrokerConfig, console_listen: str | None) -> None:
    stopped = asyncio.Event()
    stop_on_signals((signal.SIGTERM, signal.SIGINT), stopped.set)
    server = BrokerServer(config)
    await server.start()
    console = None
    try:
        if console_listen is not None:
            console = start_console(console_listen, server)
        _collect_seldom()
        print(_ready_line(server, None if console is None else console.url), flush=True)
        await stopped.wait()
        log_event(logger, logging.INFO, "stopping")
    finally:
        if console is not None:
            await asyncio.to_thread(console.stop)
        await server.stop()
    log_event(logger, logging.INFO, "stopped")


def _collect_seldom() -> None:
    """Collect garbage less often: requests create no cycles, and startup objects live forever."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _ready_line(server: BrokerServer, console: str | None) -> str:
    host = f"[{server.host}]" if ":" in server.host else server.host
    facts = [
        f"data in {','.join(server.config.data_dirs)}",
        f"cluster {server.cluster_id}",
        f"{KERNELS} kernels",
        LOOP_NAME,
    ]
    if server.metrics_address is not None:
        facts.insert(2, f"metrics on http://{server.metrics_address[0]}:{server.metrics_address[1]}/metrics")
    if console is not None:
        facts.insert(2, f"console on {console}")
    return f"ottla {__version__} listening on {host}:{server.port} ({'; '.join(facts)})"
