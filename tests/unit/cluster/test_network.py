"""The network of a cluster can be cut, silently, and a dead broker refuses connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from ottla.cluster.network import CLIENTS, Door, Network, sender_of
from ottla.cluster.ports import free_port

PEER_OF_1 = struct.pack(">ihhih", 30, 18, 4, 0, 16) + b"broker-1-fetcher"
PEER_OF_2 = PEER_OF_1.replace(b"broker-1", b"broker-2")
CLIENT = struct.pack(">ihhih", 30, 18, 4, 0, 16) + b"broker-one-or-so"


class Echo:
    """A server that sends back what it gets. `stop` ends it like a killed process."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self._run(self._echo, connection)

    def _echo(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
        except OSError:
            return

    def stop(self) -> None:
        _end(self._listener)
        self._threads[0].join()  # It may be accepting a last connection.
        for each in self._open:
            _end(each)
        for thread in self._threads:
            thread.join()


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # It has ended already.
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.stop()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.stop()


def opened(network: Network, broker: int, echo: Echo) -> Door:
    door = network.door(broker, echo.address)
    network.open(door)
    network.ready(door)
    return door


def connected(door: Door) -> socket.socket:
    return socket.create_connection(("127.0.0.1", door.port), 5)


def answer(connection: socket.socket, seconds: float = 5) -> bytes | None:
    """What comes back within a time; None if nothing does."""
    connection.settimeout(seconds)
    try:
        return connection.recv(65536)
    except TimeoutError:
        return None


def asked(connection: socket.socket, data: bytes, seconds: float = 5) -> bytes | None:
    connection.sendall(data)
    return answer(connection, seconds)


@pytest.mark.parametrize(("first", "who"), [(PEER_OF_1, 1), (PEER_OF_2, 2), (CLIENT, CLIENTS), (b"", CLIENTS)])
def test_who_connects_is_known_by_the_first_request(first: bytes, who: int | str) -> None:
    assert sender_of(first) == who


def test_bytes_are_held_back_during_a_cut_and_arrive_later(network: Network, echo: Echo) -> None:
    door = opened(network, 1, echo)
    with connected(door) as client, connected(door) as peer:
        assert asked(client, CLIENT) == CLIENT
        assert asked(peer, PEER_OF_2) == PEER_OF_2
        network.cut(1, clients=True)
        assert asked(client, b"a", 0.1) is None
        assert asked(peer, b"b", 0.1) is None
        with connected(door) as late:
            assert asked(late, CLIENT, 0.1) is None
            network.mend(1)
            assert (answer(client), answer(peer), answer(late)) == (b"a", b"b", CLIENT)


def test_clients_can_still_reach_a_broker_that_its_peers_cannot(network: Network, echo: Echo) -> None:
    door = opened(network, 1, echo)
    with connected(door) as client, connected(door) as peer:
        network.cut(1, clients=False)
        assert asked(client, CLIENT) == CLIENT
        assert asked(peer, PEER_OF_2, 0.1) is None


def test_a_broker_that_is_cut_off_reaches_neither_other_brokers_nor_zookeeper(network: Network, echo: Echo) -> None:
    other, zookeeper = opened(network, 2, echo), network.door_to_zookeeper(1, [echo.address])
    unharmed = network.door_to_zookeeper(2, [("127.0.0.1", free_port()), echo.address])
    network.cut(1, clients=True)
    with connected(other) as own, connected(other) as client, connected(zookeeper) as session:
        assert asked(own, PEER_OF_1, 0.1) is None
        assert asked(session, b"ruok", 0.1) is None
        assert asked(client, CLIENT) == CLIENT
        with connected(unharmed) as session_of_2:
            assert asked(session_of_2, b"ruok") == b"ruok"


def test_whoever_loses_a_connection_to_a_dead_broker_is_refused_the_next_one(network: Network, echo: Echo) -> None:
    door = opened(network, 1, echo)
    with connected(door) as busy, connected(door) as silent:
        assert asked(busy, CLIENT) == CLIENT
        echo.stop()
        assert answer(busy) == b""
        with pytest.raises(ConnectionRefusedError):
            connected(door)
        assert answer(silent) == b""
    again = Echo(echo.address[1])
    network.open(door)
    with connected(door) as client:
        assert asked(client, CLIENT) == CLIENT
    again.stop()


def test_a_broker_that_starts_is_not_taken_for_dead(network: Network) -> None:
    port = free_port()
    door = network.door(1, ("127.0.0.1", port))
    with pytest.raises(ConnectionRefusedError):
        connected(door)
    network.open(door)
    with connected(door) as early:
        assert answer(early) == b""
    echo = Echo(port)
    with connected(door) as client:
        assert asked(client, CLIENT) == CLIENT
    echo.stop()


def test_the_death_of_a_broker_is_not_noticed_during_a_cut(network: Network, echo: Echo) -> None:
    door = opened(network, 1, echo)
    with connected(door) as peer:
        assert asked(peer, PEER_OF_2) == PEER_OF_2
        network.cut(1, clients=True)
        echo.stop()
        assert answer(peer, 0.1) is None
        network.mend(1)
        assert answer(peer) == b""
