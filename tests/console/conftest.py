"""A broker and a console over real sockets, shared by all tests here. Tests use topics and groups of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from ottla import Broker
from ottla.console.server import ConsoleThread
from ottla.console.settings import Settings

Start = Callable[..., httpx.Client]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def start(broker: Broker) -> Iterator[Start]:
    """Starts consoles: ``start(read_only=True)`` returns an HTTP client for it."""
    threads: list[ConsoleThread] = []
    clients: list[httpx.Client] = []

    def starts(**settings: Any) -> httpx.Client:
        arguments = ("--bootstrap-server", broker.bootstrap_servers)
        thread = ConsoleThread(Settings(**{"config": broker.client_config(), "arguments": arguments, **settings}))
        threads.append(thread)
        clients.append(httpx.Client(base_url=thread.url, headers={"accept": "text/html"}, verify=False))
        return clients[-1]

    yield starts
    for client in clients:
        client.close()
    for thread in threads:
        thread.stop()


@pytest.fixture(scope="module")
def console(start: Start) -> httpx.Client:
    """An HTTP client for a console that everybody may use."""
    return start()
