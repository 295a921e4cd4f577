"""``ottla cluster start|status|explain|unregister``."""

from __future__ import annotations

import argparse

from ottla.cli.cluster import explain, start, status, unregister
from ottla.cli.options import add_parser
from ottla.cli.session import add_action


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    start.configure(add_parser(actions, "start", "start ZooKeeper and several brokers on this machine"))
    summary = "show brokers, the controller, and partitions with problems"
    status.configure(add_action(actions, "status", status.status, summary))
    summary = "show who led a partition when, why that changed, and who was out of sync"
    explain.configure(add_action(actions, "explain", explain.explain, summary))
    summary = "forget a broker that was stopped and will not come back"
    unregister.configure(add_action(actions, "unregister", unregister.unregister, summary))
