"""Compare TLS and logins with Apache Kafka: `python -m benchmarks.security`, or `make bench-security`.

Both brokers have the same certificate and users, and take turns. Throughput is that of librdkafka over TLS. A
handshake is one of TLS 1.3 with a P-256 key, without resumption, and one request; a login is SCRAM-SHA-256 with 4096
iterations. Both are made by two processes of ours, one after the other in each.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

import ottla
from benchmarks import apache_kafka, load, ottla_broker
from benchmarks.comparison import add_quick, new_parser, reporting, say
from benchmarks.peer import HOST, Peer, free_port
from benchmarks.report import Report, Target
from ottla.net.client.connection import Connection
from ottla.net.client.sasl import Sasl
from ottla.net.client.security import Security

BENCHMARKS = ("throughput", "handshakes", "logins")
FASTER, AS_FAST, LESS_CPU = Target(">=", 1.2), Target(">=", 1.0), Target("<=", 0.6)
USER, PASSWORD, MECHANISM = "bench", "a password", "SCRAM-SHA-256"
PROCESSES = 2
SIZE = 1024
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class Certificates:
    """An authority, and the broker's key and certificate as Kafka reads them."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost", HOST)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        self.authority, self.broker = directory / "ca.pem", directory / "broker.pem"
        authority.cert_pem.write_to_path(self.authority)
        self.broker.touch(mode=0o600)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.broker.write_bytes(pem + b"".join(blob.bytes() for blob in issued.cert_chain_pems))


class Secured:
    """A broker with listeners for plain text, TLS and SASL."""

    def __init__(self, make: type[Peer], certificates: Certificates) -> None:
        ports = {name: free_port() for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")}
        config = {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in ports) + ",CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificates.broker,
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }
        self.peer = make(config, port=ports["PLAINTEXT"])
        self.name = self.peer.name
        self.tls, self.sasl = ports["SSL"], ports["SASL_PLAINTEXT"]
        self.client = {
            "bootstrap.servers": f"{HOST}:{self.tls}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates.authority),
        }

    def add_user(self) -> None:
        with ottla.Admin(bootstrap_servers=self.peer.bootstrap_servers) as admin:
            admin.alter_users({USER: PASSWORD})


# ── throughput ────────────────────────────────────────────────────────────────────────────────────────────────────


def throughput(broker: Secured, report: Report, topic: str, records: int) -> None:
    """Fill a topic over TLS and read it."""
    load.create_topic(broker.peer, topic)
    going_in = load.produce(broker.peer, topic, size=SIZE, records=records, config=broker.client)
    there = load.records_in(broker.peer, topic)
    job = {"role": "consume", "topic": topic, "records": there}
    going_out = load.run_same(broker.peer, job, {**load.CONSUMER, **broker.client})
    load.delete_topic(broker.peer, topic)
    for what, totals in (("produce", going_in), ("consume", going_out)):
        payload = totals.records * SIZE
        rate = report.measure("TLS, records of 1 KB", what, "records/s", FASTER)
        rate.add(broker.name, totals.records / totals.seconds)
        rate.notes[broker.name] = f"clients {totals.client_cores:.1f} cores, broker {totals.broker_cores:.1f}"
        cpu = report.measure("TLS, records of 1 KB", f"{what}, broker's CPU", "s/GB", LESS_CPU)
        cpu.add(broker.name, totals.broker_cpu / (payload / 1e9))
        report.other_cores.append(totals.other_cores)


# ── handshakes and logins ─────────────────────────────────────────────────────────────────────────────────────────


def shake_hands(port: int, authority: str, seconds: float) -> int:
    """Connect again and again; return how often."""
    context = ssl.create_default_context(cafile=authority)
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with (
            socket.create_connection((HOST, port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as wrapped,
        ):
            wrapped.sendall(_API_VERSIONS)
            assert wrapped.recv(4)
        done += 1
    return done


def log_in(port: int, _: str, seconds: float) -> int:
    """Log in again and again; return how often."""
    security = Security(sasl=Sasl(MECHANISM, USER, PASSWORD))

    async def main() -> int:
        done, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            await (await Connection.open(HOST, port, security=security)).close()
            done += 1
        return done

    return asyncio.run(main())


def repeat(
    broker: Secured, report: Report, name: str, work: Callable[[int, str, float], int], args: tuple[int, str, float]
) -> None:
    """Let some processes do the same work at the same time, and report how often and at what cost."""
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.starmap(work, [(*args[:2], 0.2)] * PROCESSES)  # The imports are done.
        before = broker.peer.cpu_seconds()
        done = sum(pool.starmap(work, [args] * PROCESSES))
        cpu = broker.peer.cpu_seconds() - before
    report.measure("Connections", name, "1/s", AS_FAST).add(broker.name, done / args[2])
    report.measure("Connections", f"{name}, broker's CPU", "ms").add(broker.name, cpu / done * 1000)


def measure(brokers: list[Secured], report: Report, options: argparse.Namespace, authority: Path) -> None:
    seconds = 2.0 if options.quick else 8.0
    records = 300_000 if options.quick else 1_000_000
    for repetition in range(options.repetitions):
        for broker in brokers:
            say(f"round {repetition + 1} of {options.repetitions}, {broker.name}")
            if "throughput" in options.only:
                throughput(broker, report, f"tls-{repetition}", records)
            if "handshakes" in options.only:
                repeat(broker, report, "TLS handshakes", shake_hands, (broker.tls, str(authority), seconds))
            if "logins" in options.only:
                repeat(broker, report, "SCRAM logins", log_in, (broker.sasl, "", seconds))


def warm_up(brokers: list[Secured], authority: Path) -> None:
    """Warm up just-in-time compilers."""
    scrap = Report({})
    for broker in brokers:
        broker.add_user()
        for number in range(2):
            throughput(broker, scrap, f"warm-up-{number}", 300_000)
        repeat(broker, scrap, "", shake_hands, (broker.tls, str(authority), 3.0))
        repeat(broker, scrap, "", log_in, (broker.sasl, "", 3.0))


def main() -> None:
    parser = new_parser("Compare TLS and logins with Apache Kafka on this machine.", BENCHMARKS)
    add_quick(parser)
    options = parser.parse_args()
    options.only = options.only or list(BENCHMARKS)
    options.repetitions = 1 if options.quick else 3
    makers: list[type[Peer]] = [ottla_broker.OttlaBroker]
    if not options.without_kafka:
        if problem := apache_kafka.missing():
            say(f"No comparison, ottla runs alone: {problem}")
        else:
            makers.append(apache_kafka.ApacheKafka)
    about: Mapping[str, Any] = {"librdkafka": confluent_kafka.libversion()[0], "kafka": apache_kafka.KAFKA_VERSION}
    report = Report(about)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, contextlib.ExitStack() as stack:
        certificates = Certificates(Path(directory))
        brokers = [Secured(make, certificates) for make in makers]
        for broker in brokers:
            stack.enter_context(broker.peer)
        say("warm-up")
        warm_up(brokers, certificates.authority)
        with reporting(report):
            measure(brokers, report, options, certificates.authority)


if __name__ == "__main__":
    main()
