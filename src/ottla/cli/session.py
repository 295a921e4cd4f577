"""Running a command's coroutine on the event loop, with a client that is closed whatever happens."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ottla.cli.options import did_you_mean
from ottla.clients.metadata import TopicInfo
from ottla.clients.wire import WireClient
from ottla.errors import UnknownTopicOrPartition
from ottla.runtime.loops import new_event_loop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; Ctrl-C cancels it and raises KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def run_with_client(args: Namespace, command: Callable[[WireClient, Namespace], Awaitable[int]]) -> int:
    """Run a command against the cluster of ``--bootstrap-server``."""

    async def session() -> int:
        async with WireClient(args.bootstrap_server, client_id="ottla-cli") as client:
            return await command(client, args)

    return run(session())


async def existing_topic(client: WireClient, name: str) -> TopicInfo:
    """A topic that must be there; the error names the one that was probably meant."""
    try:
        return await client.topic(name)
    except UnknownTopicOrPartition:
        names = (await client.metadata()).topics
        hint = did_you_mean(name, names) or "; `ottla topics list` shows all"
        raise UnknownTopicOrPartition(f"topic {name!r} does not exist{hint}") from None
