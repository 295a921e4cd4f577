"""``ottla exporter``: Prometheus metrics and events for all groups of a cluster."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from argparse import Namespace
from pathlib import Path

from ottla.cli.options import UsageError, add_bootstrap_option, client_config, positive
from ottla.cli.session import run as run_coroutine
from ottla.cli.session import stop_on_signals
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.errors import ConfigError
from ottla.exporter.delivery import Delivery
from ottla.exporter.exporter import Exporter
from ottla.exporter.settings import Settings, read_settings
from ottla.runtime.clock import SystemClock

_EPILOG = """\
examples:
  ottla exporter -b kafka:9092                              metrics on http://127.0.0.1:9404/metrics
  ottla exporter --lag-seconds 300 --events-log -           print an event when a group is 5 minutes behind
  ottla exporter --config exporter.toml --webhook 'https://alerts.example.com/kafka'

The file has the same settings as the options, with _ for -: lag_seconds = 300. Options win. docs/monitoring.md lists
the metrics and the events.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_bootstrap_option(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with settings")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where metrics are served (default: 127.0.0.1:9404)")
    parser.add_argument("--interval", type=float, metavar="SECONDS", help="the time between polls (default: 15)")
    events = parser.add_argument_group("events")
    events.add_argument("--lag-records", type=positive, metavar="N", help="tell of groups with more unread records")
    events.add_argument("--lag-seconds", type=float, metavar="N", help="tell of groups that are further behind")
    events.add_argument(
        "--dead-letters",
        action="append",
        metavar="TOPIC",
        help="tell of new records in this topic, or in *.dead; repeatable",
    )
    events.add_argument("--quiet", type=float, metavar="SECONDS", help="tell of repeats together (default: 60)")
    events.add_argument("--repeat", type=float, metavar="SECONDS", help="tell again of what lasts (default: 3600)")
    events.add_argument("--webhook", metavar="URL", help="post events to this address")
    events.add_argument("--events-log", metavar="FILE", help="append events to this file as JSON; - prints them")
    events.add_argument("--events-topic", metavar="TOPIC", help="write events to this topic")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    settings = _settings(args)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("ottla.clients").setLevel(logging.WARNING)  # A failed poll says it already.
    run_coroutine(_serve(args, settings))
    return 0


def _settings(args: Namespace) -> Settings:
    names = Settings.__dataclass_fields__
    given = {name: value for name in names if (value := getattr(args, name, None)) is not None}
    try:
        values = {} if args.config is None else read_settings(args.config)
        return Settings.of({**values, **given})
    except ConfigError as error:
        raise UsageError(str(error)) from None


async def _serve(args: Namespace, settings: Settings) -> None:
    stopped = asyncio.Event()
    stop_on_signals((signal.SIGTERM, signal.SIGINT), stopped.set)
    config = {**client_config(args), "client.id": "ottla-exporter"}
    async with AsyncAdmin(config) as admin:
        cluster = admin.cluster
        cluster_id = (await cluster.refresh(())).cluster_id
        async with Delivery(settings.places, config, cluster_id) as delivery:
            exporter = Exporter(cluster, settings, delivery, SystemClock().now)
            await exporter.server.start()
            polls = asyncio.create_task(exporter.run())
            try:
                host = settings.address[0] or "127.0.0.1"
                host = f"[{host}]" if ":" in host else host
                print(f"metrics on http://{host}:{exporter.server.port}/metrics", flush=True)
                waiting = asyncio.create_task(stopped.wait())
                await asyncio.wait({waiting, polls}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if polls.done():
                    polls.result()
            finally:
                polls.cancel()
                await asyncio.gather(polls, return_exceptions=True)
                await exporter.server.stop()
