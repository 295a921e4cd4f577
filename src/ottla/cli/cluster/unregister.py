"""``ottla cluster unregister BROKER``: forget a broker that will not come back."""

from __future__ import annotations

import argparse
from argparse import Namespace

from ottla.cli.options import not_negative
from ottla.cli.terminal import plural, print_json
from ottla.cli.topics.describe import described_topics, ids
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.errors import OttlaError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", type=not_negative, metavar="BROKER", help="the id of a broker that was stopped")


async def unregister(admin: AsyncAdmin, args: Namespace) -> int:
    cluster = await admin.describe_cluster(include_fenced_brokers=True)
    node = next((node for node in cluster.nodes if node.id == args.broker), None)
    if node is None:
        known = ", ".join(str(node.id) for node in cluster.nodes)
        raise OttlaError(f"there is no broker {args.broker}: the cluster has {known}")
    if not node.is_fenced:
        raise OttlaError(f"broker {args.broker} is running: stop it first")
    await _check_empty(admin, args.broker)
    await admin.unregister_broker(args.broker)
    if args.json:
        print_json({"broker": args.broker, "status": "unregistered"})
    else:
        print(f"unregistered broker {args.broker}")
    return 0


async def _check_empty(admin: AsyncAdmin, broker: int) -> None:
    topics = await described_topics(admin, ())
    every = [(topic.name, one) for topic in topics for one in topic.partitions]
    left = [f"{name}-{one.partition}" for name, one in every if broker in ids(one.replicas)]
    if left:
        raise OttlaError(
            f"broker {broker} still has replicas of {plural(len(left), 'partition')}, such as {left[0]}: run  ottla "
            f"topics reassign --all --without-broker {broker} --wait  first"
        )
