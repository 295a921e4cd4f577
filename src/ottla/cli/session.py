"""Run a command's coroutine on the event loop, with a client that is always closed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from ottla.cli.options import add_bootstrap_option, add_json_option, add_parser, client_config
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.metadata import TopicInfo
from ottla.errors import UnknownTopicOrPartition
from ottla.runtime.loops import new_event_loop
from ottla.suggestions import hint as did_you_mean

T = TypeVar("T")
Command: TypeAlias = Callable[[AsyncAdmin, Namespace], Awaitable[int]]
PATIENCE_SECONDS = 1.0


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; Ctrl-C cancels it and raises KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_interruptible(main))


async def _interruptible(main: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(main)
    stop_on_signals((signal.SIGINT,), task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def stop_on_signals(numbers: Iterable[signal.Signals], stop: Callable[[], object]) -> None:
    """Call `stop` on these signals; a signal more than a second after the first ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    impatient: list[float] = []

    def received(number: signal.Signals) -> None:
        if impatient and loop.time() > impatient[0]:
            os._exit(128 + number)
        impatient.append(loop.time() + PATIENCE_SECONDS)
        stop()

    for number in numbers:
        loop.add_signal_handler(number, received, number)


class HasCluster(Protocol):
    """Any ottla client."""

    @property
    def cluster(self) -> Cluster: ...


def add_action(actions: Any, name: str, command: Command, summary: str) -> ArgumentParser:
    """Add an action that talks to a cluster and can print JSON."""
    parser = add_parser(actions, name, summary)
    add_bootstrap_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=partial(run_with_admin, command=command))
    return parser


def run_with_admin(args: Namespace, command: Command) -> int:
    """Run a command with an admin client for the cluster of ``--bootstrap-server``."""

    async def session() -> int:
        async with AsyncAdmin(client_config(args)) as admin:
            return await command(admin, args)

    return run(session())


async def existing_topic(client: HasCluster, name: str) -> TopicInfo:
    """The topic, which must exist; the error suggests a similar name."""
    try:
        return await client.cluster.topic(name)
    except UnknownTopicOrPartition:
        names = (await client.cluster.refresh(None)).topics
        hint = did_you_mean(name, names) or "; `ottla topics list` lists all topics"
        raise UnknownTopicOrPartition(f"topic {name!r} does not exist{hint}") from None


def check_partition(topic: TopicInfo, partition: int) -> None:
    if partition not in topic.partitions:
        last = len(topic.partitions) - 1
        raise UnknownTopicOrPartition(f"topic {topic.name} has no partition {partition}: it has 0 to {last}")
