"""What a permission costs: the authorizer with 10,000 rules, relative to a produce request.

    python -m benchmarks.authorization

A real broker takes small produce requests over a socket. Rounds with and without the authorizer alternate, so that
both have the same noise. The cost of the checks alone is measured too: it is what the difference should be.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import time
from collections.abc import Iterator

import ottla
from ottla.broker.authorization import check
from ottla.broker.handlers.produce import WRITE
from ottla.broker.node import Call, Node
from ottla.net.server.connection import Connection
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.records import Record, encode_batch
from ottla.security.acls import AclBinding, Operation, ResourceType
from ottla.security.authorizer import Acls, Authorizer
from ottla.security.principals import Principal

RULES = 10_000
VERSION = 9
ME = Principal("User", "ANONYMOUS")


def rules(number: int) -> Iterator[AclBinding]:
    """Yield rules as a company has them: users, teams with prefixes, a few for everyone, and the one that counts."""
    yield AclBinding("topic", "orders", principal=str(ME), operation="write")
    yield AclBinding("topic", "*", principal="User:*", operation="describe")
    for each in range(number - 2):
        user, kind = f"User:u{each % 500}", ("topic", "group")[each % 2]
        if each % 5:
            yield AclBinding(kind, f"team{each % 97}.thing{each}", principal=user, operation="read")
        else:
            yield AclBinding(kind, f"team{each % 97}.{each}-", "prefixed", user, operation="all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--requests", type=int, default=40, help="of each round")
    args = parser.parse_args()
    acls = Acls(rules(RULES))
    authorizer = Authorizer(acls)
    with ottla.Broker() as broker:
        node, (host, port) = broker._running().node, broker.bootstrap_servers.split(":")
        with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics("orders")
        with socket.create_connection((host, int(port))) as connection:
            with_rules, without = _rounds(node, connection, authorizer, args.rounds, args.requests)
            checks = _checks(node, next(iter(broker._running().servers[0].connections)), authorizer)
    hit, miss = _known(authorizer), _new(acls)
    produce = statistics.median(without)
    # Neighbours have the same noise. The median of their differences is not moved by rounds that were interrupted.
    differences = [on - off for on, off in zip(with_rules, without, strict=True)]
    low, difference, high = statistics.quantiles(_medians(differences), n=4)
    print(f"produce without an authorizer       {produce:8.2f} µs")
    print(f"difference with {len(acls):,} rules      {difference:8.2f} µs  {100 * difference / produce:5.1f} %", end="")
    print(f"  (quartiles {low:.2f} to {high:.2f} µs)")
    print(f"all checks of a produce             {checks:8.2f} µs  {100 * checks / produce:5.1f} %")
    print(f"a decision that is remembered       {hit:8.2f} µs  {100 * hit / produce:5.1f} %")
    print(f"a new decision                      {miss:8.2f} µs  {100 * miss / produce:5.1f} %")


def _medians(values: list[float], groups: int = 15) -> list[float]:
    """Return the median of each of some groups, to see how far they scatter."""
    return [statistics.median(values[each::groups]) for each in range(groups)]


def _rounds(
    node: Node, connection: socket.socket, authorizer: Authorizer, rounds: int, requests: int
) -> tuple[list[float], list[float]]:
    """Return the microseconds of a request in each round, with the authorizer and without."""
    frame = _frame()
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * rounds):
        is_on = bool(number % 2)
        node.authorizer = authorizer if is_on else None
        started = time.perf_counter()
        for _ in range(requests):
            connection.sendall(frame)
            connection.recv(4096)
        times[is_on].append(1e6 * (time.perf_counter() - started) / requests)
    return times[True][1:], times[False][1:]


def _frame() -> bytes:
    """Return a produce request with one small record."""
    batch = encode_batch([Record(0, 1_700_000_000_000, None, b"x" * 100)])
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    message = {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": data}
    return bytes(codec.encode_request(ApiKey.PRODUCE, VERSION, 1, "bench", message))


def _checks(node: Node, connection: Connection, authorizer: Authorizer, number: int = 100_000) -> float:
    """Return the microseconds of what the handler asks for one produce request."""
    node.authorizer = authorizer
    call = Call(connection, ApiKey.PRODUCE, VERSION, 1, "bench")
    started = time.perf_counter()
    for _ in range(number):
        check(node, call, WRITE, "orders")
    return 1e6 * (time.perf_counter() - started) / number


def _known(authorizer: Authorizer, number: int = 200_000) -> float:
    started = time.perf_counter()
    for _ in range(number):
        authorizer.decide(ME, "127.0.0.1", Operation.WRITE, ResourceType.TOPIC, "orders")
    return 1e6 * (time.perf_counter() - started) / number


def _new(acls: Acls, number: int = 20_000) -> float:
    authorizer = Authorizer(acls)
    names = [f"team{each % 97}.thing{each}" for each in range(number)]
    started = time.perf_counter()
    for name in names:
        authorizer.decide(ME, "127.0.0.1", Operation.WRITE, ResourceType.TOPIC, name)
    return 1e6 * (time.perf_counter() - started) / number


if __name__ == "__main__":
    main()
