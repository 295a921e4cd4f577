"""Deliver events to a webhook, a file and a topic: each in order, again and again until it is taken.

At least once, while the process runs: an event is sent again if the answer was lost, with the same id. Events wait in
memory, at most `MOST_WAITING` for each place; beyond that the oldest are dropped and counted. What a webhook refuses
(4xx) is dropped too, because it would refuse it again. At the end, `close` gives each place `LAST_CHANCE` seconds.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.errors import OttlaError
from ottla.monitoring.alarms import Event

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
LAST_CHANCE = 5.0
WEBHOOK_TIMEOUT = 10.0
_WORTH_REPEATING = (408, 425, 429)

T = TypeVar("T")
R = TypeVar("R")
Send: TypeAlias = Callable[[T], Awaitable[None]]


class Places(NamedTuple):
    """Where events go."""

    webhook: str | None = None
    log: str | None = None
    """A file; ``-`` is the standard output."""
    topic: str | None = None


class NotTaken(OttlaError):
    """The place did not take an event, but may take it later."""


class Refused(OttlaError):
    """The place will never take this event."""


def as_json(event: Event, cluster_id: str | None) -> bytes:
    """An event as one line of JSON."""
    at = datetime.fromtimestamp(event.at / 1000, tz=UTC).isoformat(timespec="milliseconds")
    head = {"event": event.subject.kind, "status": event.status, "at": at, "id": event.id}
    cluster = {} if cluster_id is None else {"cluster": cluster_id}
    body: dict[str, Any] = {**head, **cluster, "subject": event.subject.name, "count": event.count, **event.details}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class Outlet(Generic[T]):
    """One place, with the events that wait for it."""

    def __init__(self, name: str, send: Send[T], *, first_pause: float = FIRST_PAUSE) -> None:
        self.name = name
        self.sent = self.dropped = self.failed = 0
        self._send = send
        self._first_pause = first_pause
        self._waiting: deque[T] = deque()
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def put(self, event: T) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(event)
        self._wake.set()

    async def close(self) -> None:
        """Send what is left, if it takes not too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_CHANCE):
                while self._waiting:
                    await asyncio.sleep(0.01)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._waiting:
            logger.warning("events that were not delivered to the %s: %d", self.name, len(self._waiting))

    async def _run(self) -> None:
        pause = self._first_pause
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            event = self._waiting[0]
            try:
                await self._send(event)
                self.sent += 1
            except Refused as error:
                self.dropped += 1
                logger.warning("the %s refused an event: %s", self.name, error)
            except (OttlaError, OSError) as error:
                self.failed += 1
                if pause == self._first_pause:
                    logger.warning("the %s does not take events, which wait: %s", self.name, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause = self._first_pause
            if self._waiting and self._waiting[0] is event:  # Otherwise it was dropped meanwhile.
                self._waiting.popleft()


async def _in_daemon(function: Callable[[], R]) -> R:
    """Run a function in a thread that does not keep the process from ending, unlike those of `asyncio.to_thread`."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def finish(result: R | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(cast(R, result))
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except Exception as one:
            error = one
        with suppress(RuntimeError):  # The loop has ended meanwhile.
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=run, name="ottla-sending", daemon=True).start()
    return await done


# ── the places ────────────────────────────────────────────────────────────────────────────────────────────────────


def to_webhook(url: str, cluster_id: str | None) -> Send[Event]:
    """POST each event as JSON; any 2xx takes it."""

    async def send(event: Event) -> None:
        status = await _in_daemon(partial(_post, url, as_json(event, cluster_id)))
        if 200 <= status < 300:
            return
        if 400 <= status < 500 and status not in _WORTH_REPEATING:
            raise Refused(f"HTTP status {status}; check the address and what it expects")
        raise NotTaken(f"HTTP status {status}")

    return send


def _post(url: str, body: bytes) -> int:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=WEBHOOK_TIMEOUT)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", "User-Agent": "ottla-exporter"})
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise NotTaken(f"no HTTP answer ({type(error).__name__})") from None
    finally:
        connection.close()


def to_log(path: str, cluster_id: str | None) -> Send[Event]:
    """Append each event as a line to a file; ``-`` is the standard output."""

    async def send(event: Event) -> None:
        line = as_json(event, cluster_id) + b"\n"
        if path == "-":
            sys.stdout.write(line.decode())
            sys.stdout.flush()
            return
        await _in_daemon(partial(_append, path, line))

    return send


def _append(path: str, line: bytes = b"") -> None:
    # Opened for each event, so that the file may be rotated.
    with open(path, "ab") as file:
        file.write(line)


def to_topic(producer: AsyncProducer, topic: str, cluster_id: str | None) -> Send[Event]:
    """Write each event to a topic, with its subject as the key."""

    async def send(event: Event) -> None:
        key = f"{event.subject.kind}/{event.subject.name}".encode()
        await producer.send_and_wait(topic, value=as_json(event, cluster_id), key=key)

    return send


class Delivery:
    """All places that events go to. Use as an async context manager."""

    def __init__(self, places: Places, client_config: Mapping[str, object], cluster_id: str | None = None) -> None:
        self._places = places
        self._client_config = client_config
        self._cluster_id = cluster_id
        self._producer: AsyncProducer | None = None
        self.outlets: list[Outlet[Event]] = []

    async def __aenter__(self) -> Delivery:
        webhook, log, topic = self._places
        if log is not None:
            if log != "-":
                _append(log)  # A path that cannot be written is told at the start.
            self.outlets.append(Outlet("log", to_log(log, self._cluster_id)))
        if webhook is not None:
            self.outlets.append(Outlet("webhook", to_webhook(webhook, self._cluster_id)))
        if topic is not None:
            self._producer = AsyncProducer({**self._client_config, "acks": "all", "linger.ms": 0})
            await self._producer.__aenter__()
            self.outlets.append(Outlet("topic", to_topic(self._producer, topic, self._cluster_id)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(outlet.close() for outlet in self.outlets))
        if self._producer is not None:
            await self._producer.close(0)  # What is left had its last chance.

    def put(self, event: Event) -> None:
        for outlet in self.outlets:
            outlet.put(event)


class DeliveryThread:
    """A `Delivery` in a thread with its own event loop, for programs without one. Use as a context manager.

    Nothing here waits for a place, except the end, for at most `LAST_CHANCE` seconds.
    """

    def __init__(self, places: Places, client_config: Mapping[str, object]) -> None:
        self._delivery = Delivery(places, client_config)
        self._more: list[Outlet[Any]] = []
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(self._delivery.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla-events", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._delivery.put, event)

    def outlet(self, name: str, send: Callable[[T], None]) -> Callable[[T], None]:
        """Add a place; returns the function that sends to it. `send` may block: it runs in a thread of its own.

        It raises NotTaken or OSError if the place may take the event later.
        """

        async def sending(event: T) -> None:
            await _in_daemon(partial(send, event))

        async def made() -> Outlet[T]:
            return Outlet(name, sending)

        found = asyncio.run_coroutine_threadsafe(made(), self._loop).result()
        self._more.append(found)

        def put(event: T) -> None:
            self._loop.call_soon_threadsafe(found.put, event)

        return put

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        async def close() -> None:
            await asyncio.gather(self._delivery.__aexit__(), *(one.close() for one in self._more))

        asyncio.run_coroutine_threadsafe(close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
