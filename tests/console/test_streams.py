"""Streams of events: how many there may be, and that they end with their browsers."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from console.forms import csrf
from ottla import Admin, Broker, NewTopic
from ottla.console import live
from ottla.console.server import ConsoleThread
from ottla.console.sessions import Streams
from ottla.console.settings import Settings

TOKEN = "a token of 24 characters"
TCP_REPAIR = 19
"""Linux: a connection in this mode is closed without a word to the other side."""


@pytest.fixture
def thread(broker: Broker) -> Iterator[ConsoleThread]:
    thread = ConsoleThread(Settings(config=broker.client_config(), token=TOKEN))
    thread.console.streams = Streams(each=2, most=3)
    thread.console.tails = Streams(each=1, most=2)
    yield thread
    thread.stop()


@contextlib.contextmanager
def browser(thread: ConsoleThread) -> Iterator[httpx.Client]:
    """Somebody who has logged in."""
    with httpx.Client(base_url=thread.url, headers={"accept": "text/html"}, timeout=20) as client:
        client.post("/login", data={"token": TOKEN, "csrf": csrf(client.get("/login"))})
        yield client


def opened(stack: contextlib.ExitStack, client: httpx.Client, path: str = "/live") -> httpx.Response:
    """A stream whose first event has arrived, or the answer that refuses it."""
    response = stack.enter_context(client.stream("GET", path))
    if response.status_code == 200:
        lines = response.iter_lines()
        # Without anybody who has the lines, the stream would be closed.
        stack.callback(lambda: lines)
        assert next(lines) == "event: hello"
    else:
        response.read()
    return response


def until(streams: Streams, count: int) -> None:
    deadline = time.monotonic() + 20
    while streams.count != count:
        assert time.monotonic() < deadline, streams.count
        time.sleep(0.02)


def test_a_session_has_a_limit_and_so_has_the_console(thread: ConsoleThread) -> None:
    streams = thread.console.streams
    with contextlib.ExitStack() as stack:
        alice, bob = (stack.enter_context(browser(thread)) for _ in range(2))
        first = contextlib.ExitStack()
        stack.push(first)
        assert opened(first, alice).status_code == 200
        assert opened(stack, alice).status_code == 200
        refused = opened(stack, alice)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "15")
        assert refused.text == "you have 2 live pages open already: close some\n"
        assert opened(stack, bob).status_code == 200
        full = opened(stack, bob)
        assert (full.status_code, full.text) == (503, "the console has 3 live pages open already: try again later\n")
        # Everything else goes on, and a closed page makes room.
        assert alice.get("/topics").status_code == 200
        first.close()
        until(streams, 2)
        assert opened(stack, bob).status_code == 200
    until(streams, 0)


def test_pages_that_follow_a_topic_have_limits_of_their_own(thread: ConsoleThread, broker: Broker) -> None:
    with Admin(broker.client_config()) as admin:
        admin.create_topics([NewTopic("followed", 1)])
    path = "/topics/followed/records/tail"
    with contextlib.ExitStack() as stack:
        alice = stack.enter_context(browser(thread))
        assert opened(stack, alice, path).status_code == 200
        refused = opened(stack, alice, path)
        assert (refused.status_code, refused.text) == (503, "you have 1 live page open already: close it\n")
    until(thread.console.tails, 0)


def test_whoever_asks_many_times_at_once_gets_no_more(thread: ConsoleThread) -> None:
    with contextlib.ExitStack() as stack:
        alice = stack.enter_context(browser(thread))
        connections = [stack.enter_context(contextlib.closing(_connected(thread))) for _ in range(20)]
        for one in connections:
            one.sendall(_request(alice))
        answers = sorted(one.recv(12) for one in connections)
        assert answers == [b"HTTP/1.1 200"] * 2 + [b"HTTP/1.1 503"] * 18
    until(thread.console.streams, 0)


def test_a_browser_that_disappears_without_a_word_is_noticed(
    thread: ConsoleThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "ALIVE", 0.2)
    with browser(thread) as alice:
        connection = _connected(thread)
        with contextlib.closing(connection):
            try:
                connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 0)
            except OSError as error:
                pytest.skip(f"needs Linux and the right to administer the network: {error}")
            connection.sendall(_request(alice))
            assert connection.recv(12) == b"HTTP/1.1 200"
            until(thread.console.streams, 1)
            connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        until(thread.console.streams, 0)


def _connected(thread: ConsoleThread) -> socket.socket:
    address = urlsplit(thread.url)
    assert address.hostname is not None
    assert address.port is not None
    return socket.create_connection((address.hostname, address.port), 20)


def _request(client: httpx.Client) -> bytes:
    cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    return f"GET /live HTTP/1.1\r\nhost: localhost\r\ncookie: {cookies}\r\n\r\n".encode()
