"""Clients that never log in, on every kind of listener: hostile bytes, half-open handshakes, slow writers.

    python -m tests.fuzz.strangers --inputs 1000000 --connections 10000

Meanwhile another client must be served as before. Then memory and open files return to what they were.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import socket
import ssl
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.authorities import Authority
from tests.crash.broker_process import BrokerProcess

from ottla.protocol.apis import ApiKey

from .bystander import Bystander
from .inputs import OTHER_PROTOCOLS, SIZE_LIES, frame
from .live import DEADLINE, Broken
from .mutations import mangled, mutated
from .requests import Generator, World, body_pieces, header_pieces, joined

LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
BEFORE_LOGIN = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
MECHANISMS = (b"PLAIN", b"SCRAM-SHA-256", b"SCRAM-SHA-512")
TEXTS = (
    b"n,,n=user,r=nonce",
    b"c=biws,r=nonce,p=",
    b"\0alice\0secret",
    b"n,a=x,",
    b"p=tls-unique,,n=,r=",
    b"\0" * 70_000,
)
#: So many inputs go through one TLS session, because a handshake takes as long as hundreds of inputs.
INPUTS_OF_A_SESSION = 20
CHECK_EVERY = 2_000
MAX_GROWTH = 64 << 20
MAX_WAIT = 1.0
#: So long the other client is measured without an attack.
ALONE = 10.0


class Target:
    """A broker with each kind of listener, and a client of its plain one."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        self.ports = {name: _free_port() for name in LISTENERS}
        config = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "log.dirs": directory / "data",
            "ssl.keystore.location": self.authority.sign("broker"),
            "ssl.truststore.location": self.authority.certificate,
            "ssl.client.auth": "required",
            "listener.name.sasl_ssl.ssl.client.auth": "none",
            "sasl.enabled.mechanisms": b",".join(MECHANISMS).decode(),
            "connection.failed.authentication.delay.ms": 0,
            "ottla.authentication.timeout.ms": 3_000,
            "ottla.request.receive.timeout.ms": 2_000,
            "ottla.log.level": "ERROR",
        }
        path = directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        self.process = BrokerProcess(directory / "data", directory / "broker.log", {}, path)
        self.context = ssl.create_default_context(cafile=self.authority.certificate)
        self.bystander: Bystander
        self._log_size = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Target]:
        self.process.start()
        self._log_size = self.process.log_file.stat().st_size
        try:
            with Bystander(self.ports["PLAINTEXT"]) as self.bystander:
                yield self
        finally:
            self.process.close()

    def check(self) -> None:
        """Raise Broken if the broker has ended or was surprised."""
        if not self.process.is_alive:
            raise Broken(f"the broker has ended: {self.process.last_words()}")
        if self.process.log_file.stat().st_size != self._log_size:
            raise Broken(f"the broker was surprised: {self.process.last_words()}")
        if not self.bystander.is_alive:
            raise Broken(f"a client that behaves well got no answer within {DEADLINE:g} s")

    @property
    def resident(self) -> int:
        fields = Path(f"/proc/{self.process.process.pid}/statm").read_text().split()
        return int(fields[1]) * 4096

    @property
    def sockets(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.process.process.pid}/fd").iterdir())

    def wait_until_as_before(self, resident: int, sockets: int) -> None:
        end = time.monotonic() + 30
        while self.sockets > sockets + 5 or self.resident > resident + MAX_GROWTH:
            if time.monotonic() > end:
                raise Broken(
                    f"open files {sockets} then, {self.sockets} now; memory {resident >> 20} MiB then, "
                    f"{self.resident >> 20} MiB now"
                )
            time.sleep(0.1)


# ── inputs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def hello() -> bytes:
    """Return the first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = hello()


def tls_bytes(rng: random.Random) -> bytes:
    """Return something that is not quite TLS."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 400))
    if kind == 1:
        return rng.choice(OTHER_PROTOCOLS)
    if kind == 2:
        return HELLO[: rng.randrange(1, len(HELLO))]
    changed = bytearray(HELLO)
    if kind == 3:  # a lie in one of the lengths at the front
        position = rng.choice((3, 4, 6, 7, 8, 43, 76, 77))
        changed[position] = rng.randrange(256)
    else:
        for _ in range(rng.randrange(1, 8)):
            changed[rng.randrange(5, len(changed))] = rng.randrange(256)
    if kind == 5:
        kinds = rng.choice((20, 21, 22, 23, 24))
        changed += bytes([kinds, 3, 3]) + struct.pack(">H", rng.choice((0, 1, 2, 16_384, 65_535))) + rng.randbytes(100)
    return bytes(changed)


def sasl_bytes(rng: random.Random, generator: Generator) -> bytes:
    """Return what a client may send before it is known, with something wrong."""
    kind = rng.randrange(7)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 400))
    if kind == 1:
        return rng.choice(OTHER_PROTOCOLS)
    if kind == 2:
        return struct.pack(">i", rng.choice(SIZE_LIES)) + rng.randbytes(rng.randrange(200))
    if kind == 3:
        return _handshake(rng) + frame(rng.choice(TEXTS) + rng.randbytes(rng.randrange(30)))
    request = generator.request(rng.choice(BEFORE_LOGIN) if kind < 6 else None)
    pieces = header_pieces(request.api_key, request.version, 7) + body_pieces(request)
    payload = mutated(rng, pieces) if rng.random() < 0.7 else mangled(rng, joined(pieces))
    return (_handshake(rng) if rng.random() < 0.5 else b"") + frame(payload)


def _handshake(rng: random.Random) -> bytes:
    mechanism = rng.choice((*MECHANISMS, b"GSSAPI", rng.randbytes(5)))
    payload = struct.pack(">hhih", ApiKey.SASL_HANDSHAKE, rng.randrange(2), 7, -1)
    return frame(payload + struct.pack(">h", len(mechanism)) + mechanism)


def throw(target: Target, listener: str, seed: int, count: int) -> None:
    """Send hostile inputs to a listener, many of them without waiting for what the broker does."""
    begin, number = time.monotonic(), 0
    target.bystander.waits()
    while number < count:
        rng = random.Random(f"{seed}/{listener}/{number}")
        generator = Generator(rng, World())
        sock = socket.create_connection(("127.0.0.1", target.ports[listener]), DEADLINE)
        with contextlib.closing(sock), contextlib.suppress(OSError):
            if listener == "SASL_SSL" and rng.random() < 0.5:
                with target.context.wrap_socket(sock, server_hostname="localhost") as inside:
                    for _ in range(INPUTS_OF_A_SESSION):
                        number += 1
                        inside.sendall(sasl_bytes(rng, generator))
                number -= 1
            else:
                sock.sendall(tls_bytes(rng) if listener.endswith("SSL") else sasl_bytes(rng, generator))
            if rng.random() < 0.1:
                sock.settimeout(0.01)
                sock.recv(1 << 16)
        number += 1
        if number % CHECK_EVERY == 0:
            target.check()
    target.check()
    seconds, waited = time.monotonic() - begin, target.bystander.waits()
    print(f"  {listener:15} {count:9,} inputs in {seconds:5.0f} s; others waited {waited}", flush=True)


# ── connections that stay ─────────────────────────────────────────────────────────────────────────────────────────


def hold(target: Target, listener: str, count: int) -> None:
    """Open connections that send nothing, a part, or a whole first message, and then no more, one byte at a time."""
    resident, sockets = target.resident, target.sockets
    target.bystander.waits()
    held: list[socket.socket] = []
    first = HELLO if listener.endswith("SSL") else _handshake(random.Random(1))
    for number in range(count):
        sock = socket.socket()
        sock.bind((f"127.0.0.{2 + number // 900}", 0))
        sock.connect(("127.0.0.1", target.ports[listener]))
        with contextlib.suppress(OSError):
            sock.sendall(first[: (0, 5, len(first) // 2, len(first))[number % 4]])
        held.append(sock)
    most = target.resident
    for sock in held:
        with contextlib.suppress(OSError):
            sock.send(b"\x01")
    target.check()
    waited = target.bystander.waits()
    for sock in held:
        sock.close()
    target.wait_until_as_before(resident, sockets)
    took = f"{(most - resident) >> 20} MiB; others waited {waited}"
    print(f"  {listener:15} {count:9,} connections without a login: {took}", flush=True)
    if waited.longest > MAX_WAIT:
        raise Broken(f"another client had to wait {waited.longest:.3f} s")


def control(target: Target, directory: Path, seed: int, count: int) -> None:
    """Attack another broker: what others then wait for is the processor, not the broker."""
    directory.mkdir()
    with Target(directory).running() as other:
        target.bystander.waits()
        throw(other, "SSL", seed, count)
        waited = target.bystander.waits()
    print(f"  that was another broker; others waited {waited}", flush=True)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each listener")
    parser.add_argument("--connections", type=int, default=10_000, help="for each listener")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="ottla-strangers-") as directory,
        Target(Path(directory)).running() as target,
    ):
        target.bystander.waits()
        time.sleep(ALONE)
        print(f"  without strangers, others wait {target.bystander.waits()}", flush=True)
        control(target, Path(directory) / "other", args.seed, max(1, args.inputs // 20))
        try:
            for listener in LISTENERS[1:]:
                throw(target, listener, args.seed, args.inputs)
                hold(target, listener, args.connections)
        except AssertionError as problem:
            print(f"\nFAILED (seed {args.seed}): {problem}", file=sys.stderr)
            return 1
    print("nothing broke")
    return 0


if __name__ == "__main__":
    sys.exit(main())
