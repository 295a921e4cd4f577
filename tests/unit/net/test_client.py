"""A client connection to servers that respond correctly, wrongly, late, or not with Kafka's protocol."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from ottla.errors import RequestTimedOut, UnsupportedVersion
from ottla.net.client.connection import CannotConnect, ClosedAtOnce, Connection, Disconnected, NotKafka
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey, api
from ottla.runtime.loops import new_event_loop

SERVED = [{"api_key": key, "min_version": 0, "max_version": 99} for key in ApiKey]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Request(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    body: codec.Struct


@pytest.fixture(autouse=True)
def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The event loop of the clients."""
    return new_event_loop


async def read_request(reader: asyncio.StreamReader) -> Request:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    header = codec.decode_request_header(frame)
    body = codec.decode_request_body(header.api_key, header.api_version, frame, header.body)
    return Request(header.api_key, header.api_version, header.correlation_id, body)


def api_versions(request: Request, served: list[dict[str, int]] = SERVED) -> bytes:
    return answer(request, {"error_code": 0, "api_keys": served, "throttle_time": 0})


def answer(request: Request, message: dict[str, Any]) -> bytes:
    return bytes(codec.encode_response(request.api_key, request.version, request.correlation_id, message))


def metadata(request: Request, cluster_id: str = "c") -> bytes:
    return answer(request, {"brokers": [], "cluster_id": cluster_id, "controller_id": 1, "topics": []})


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    """A server on a free port. Its open connections are closed at the end."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def negotiated(handler: Handler, served: list[dict[str, int]] = SERVED) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(api_versions(await read_request(reader), served))
        await handler(reader, writer)

    return handle


def saying(data: bytes) -> Handler:
    """A server that always sends these bytes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(data)
        await reader.read()

    return handle


async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def open_error(handler: Handler, *, request_timeout_ms: int = 20_000) -> str:
    async with serving(handler) as port:
        with pytest.raises((NotKafka, CannotConnect)) as caught:
            await Connection.open("127.0.0.1", port, request_timeout_ms=request_timeout_ms)
        assert f"127.0.0.1:{port}" in str(caught.value)
        return str(caught.value)


# Negotiation.


async def test_the_newest_common_version_is_used() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        writer.write(metadata(request, f"version {request.version}"))
        await reader.read()

    served = [{"api_key": ApiKey.METADATA, "min_version": 0, "max_version": 7}]
    async with serving(negotiated(handle, served)) as port:
        connection = await Connection.open("127.0.0.1", port)
        response = await connection.request(ApiKey.METADATA, {"topics": None})
        assert response.cluster_id == "version 7"
        assert connection.version_of(ApiKey.METADATA, at_most=3) == 3
        await connection.close()


@pytest.mark.parametrize("listed", [2, 0, None])
async def test_a_broker_that_does_not_know_our_api_versions_is_asked_again_in_its_own(listed: int | None) -> None:
    tried = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        tried.append(request.version)
        keys = [] if listed is None else [{"api_key": 18, "min_version": 0, "max_version": listed}]
        refusal = codec.encode_response(18, 0, request.correlation_id, {"error_code": 35, "api_keys": keys})
        writer.write(bytes(refusal))
        request = await read_request(reader)
        tried.append(request.version)
        writer.write(api_versions(request))
        await reader.read()

    async with serving(handle) as port:
        connection = await Connection.open("127.0.0.1", port)
        assert connection.api_versions[ApiKey.FETCH] == (0, 99)
        await connection.close()
    assert tried == [api(18).last, listed or 0]


async def test_what_the_broker_does_not_serve_is_said_with_its_name() -> None:
    served = [{"api_key": ApiKey.FETCH, "min_version": 0, "max_version": 2}]
    async with serving(negotiated(until_closed, served)) as port:
        connection = await Connection.open("127.0.0.1", port)
        with pytest.raises(UnsupportedVersion, match="does not support CreateTopics"):
            await connection.request(ApiKey.CREATE_TOPICS, {})
        with pytest.raises(UnsupportedVersion, match=r"Fetch in versions 0 to 2.* versions 4 to \d+"):
            await connection.request(ApiKey.FETCH, {})
        await connection.close()


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "speaks TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "speaks SSH"),
        (b"220 mail.example.org ESMTP\r\n", "did not send a Kafka response"),
        (b"\xff\xff\xff\xff", "did not send a Kafka response"),
        (b"\x00\x00\x00\x03abc", "did not send a Kafka response"),
        (b"\x7f\xff\xff\xff", "did not send a Kafka response"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x63\x00\x00", "never sent"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x00\x00", "invalid response"),
    ],
)
async def test_a_peer_that_does_not_speak_kafka_is_recognised(data: bytes, hint: str) -> None:
    assert hint in await open_error(saying(data))


async def test_a_peer_that_says_nothing_is_given_up() -> None:
    told = await open_error(until_closed, request_timeout_ms=100)
    assert "check that this is the port of a PLAINTEXT listener" in told
    assert "if it requires TLS, set security.protocol=SSL or SASL_SSL" in told


async def test_a_peer_that_hangs_up_at_once_is_no_broker() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)

    assert "closed the connection" in await open_error(hang_up)


async def test_an_address_where_nobody_listens_is_named() -> None:
    async with serving(until_closed) as port:
        pass
    with pytest.raises(CannotConnect, match=rf"nothing listens at 127\.0\.0\.1:{port}: check the address"):
        await Connection.open("127.0.0.1", port)


async def test_a_host_name_that_does_not_exist_is_named() -> None:
    with pytest.raises(CannotConnect, match=r"cannot resolve the host name 'no-such-host\.invalid'"):
        await Connection.open("no-such-host.invalid", 9092)


# Requests and responses.


async def test_answers_are_matched_by_correlation_id_in_any_order() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = [await read_request(reader) for _ in range(20)]
        frames = [metadata(request, request.body.topics[0].name) for request in reversed(requests)]
        writer.write(b"".join(frames))
        await reader.read()

    async with serving(negotiated(handle)) as port:
        connection = await Connection.open("127.0.0.1", port)
        names = [f"topic-{number}" for number in range(20)]
        asked = (connection.request(ApiKey.METADATA, {"topics": [{"name": name, "topic_id": None}]}) for name in names)
        assert [answer.cluster_id for answer in await asyncio.gather(*asked)] == names
        assert connection.in_flight == 0
        await connection.close()


@pytest.mark.parametrize("loop_factory", [new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("step", [1, 5, 64 * 1024, 1_000_000])
async def test_responses_arrive_whole_however_the_network_cuts_them(step: int, loop_factory: Any) -> None:
    sizes = [0, 1, 300_000, 2, 65_536, 3] if step > 5 else [0, 1, 100, 2]

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b"".join([metadata(await read_request(reader), "x" * size) for size in sizes])
        for start in range(0, len(data), step):
            writer.write(data[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async with serving(negotiated(handle)) as port:
        connection = await Connection.open("127.0.0.1", port)
        asked = (connection.request(ApiKey.METADATA, {"topics": []}) for _ in sizes)
        assert [len(answer.cluster_id) for answer in await asyncio.gather(*asked)] == sizes
        await connection.close()


async def test_a_response_above_the_limit_closes_the_connection() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(metadata(await read_request(reader), "x" * 20_000))
        await reader.read()

    served = [{"api_key": ApiKey.METADATA, "min_version": 0, "max_version": 13}]
    async with serving(negotiated(handle, served)) as port:
        connection = await Connection.open("127.0.0.1", port, max_response_bytes=10_000)
        with pytest.raises(NotKafka, match=r"a size of 20,\d+ bytes"):
            await connection.request(ApiKey.METADATA, {"topics": []})
        assert connection.closed
        await connection.close()


async def test_a_request_that_is_not_answered_in_time_ends_the_connection() -> None:
    async with serving(negotiated(until_closed)) as port:
        connection = await Connection.open("127.0.0.1", port)
        patient = asyncio.create_task(connection.request(ApiKey.METADATA, {"topics": []}))
        await asyncio.sleep(0)
        with pytest.raises(RequestTimedOut, match=r"did not respond to DescribeConfigs within 0\.05 s"):
            await connection.request(ApiKey.DESCRIBE_CONFIGS, {"resources": []}, timeout_ms=50)
        with pytest.raises(Disconnected, match="did not respond to DescribeConfigs"):
            await patient
        with pytest.raises(Disconnected):
            await connection.request(ApiKey.METADATA, {"topics": []})
        await connection.close()


async def test_requests_in_flight_hear_that_the_broker_hung_up() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await read_request(reader)

    async with serving(negotiated(handle)) as port:
        connection = await Connection.open("127.0.0.1", port)
        asked = (connection.request(ApiKey.METADATA, {"topics": []}) for _ in range(2))
        errors = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(error) for error in errors] == [ClosedAtOnce, ClosedAtOnce]
        assert f"127.0.0.1:{port} closed the connection" in str(errors[0])
        await connection.close()


async def test_the_late_answer_of_a_cancelled_request_harms_nobody() -> None:
    go = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await read_request(reader)
        await go.wait()
        writer.write(metadata(first, "late"))
        writer.write(metadata(await read_request(reader), "good"))
        await reader.read()

    async with serving(negotiated(handle)) as port:
        connection = await Connection.open("127.0.0.1", port)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await connection.request(ApiKey.METADATA, {"topics": []})
        go.set()
        assert (await connection.request(ApiKey.METADATA, {"topics": []})).cluster_id == "good"
        await connection.close()


async def test_what_was_sent_without_an_answer_arrives_before_the_connection_closes() -> None:
    received = []
    all_received = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(20):
            request = await read_request(reader)
            received.append(len(request.body.topic_data[0].partition_data[0].records))
        all_received.set()

    produce = {
        "acks": 0,
        "timeout": 1,
        "topic_data": [{"name": "t", "topic_id": None, "partition_data": [{"index": 0, "records": bytes(500_000)}]}],
    }
    async with serving(negotiated(handle)) as port:
        connection = await Connection.open("127.0.0.1", port)
        for _ in range(20):
            await connection.send(ApiKey.PRODUCE, produce, at_most=9)
        await connection.close()
        await all_received.wait()
    assert received == [500_000] * 20


async def test_a_peer_that_does_not_read_holds_the_sender_back() -> None:
    go = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await reader.read(-1)

    big = {"topics": [{"name": "x" * 30_000, "topic_id": None}] * 100}
    async with serving(negotiated(handle)) as port:
        connection = await Connection.open("127.0.0.1", port)
        sends = [asyncio.create_task(connection.send(ApiKey.METADATA, big)) for _ in range(20)]
        done, waiting = await asyncio.wait(sends, timeout=0.2)
        assert done
        assert waiting, "60 MB were taken although nobody reads"
        go.set()
        await asyncio.wait(sends)
        await connection.close()
