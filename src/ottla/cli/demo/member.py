"""A consumer of the demo's group, as a process: ``python -m ottla.cli.demo.member SERVERS TOPIC GROUP NUMBER``.

Before each commit it prints what it has read as a line of JSON, so that the commits of a killed member are known.
SIGTERM stops it cleanly.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import time

from ottla.clients.consumer.blocking import Consumer
from ottla.consuming.errors import CommitFailed

SESSION_MS = 4_000
COMMIT_SECONDS = 0.5


class Ranges:
    """The offsets read per partition, as merged `[first, next)` ranges."""

    def __init__(self) -> None:
        self.found: dict[int, list[list[int]]] = {}

    def add(self, partition: int, first: int, after: int) -> None:
        pieces = self.found.setdefault(partition, [])
        if pieces and pieces[-1][1] == first:
            pieces[-1][1] = after
        else:
            pieces.append([first, after])


def main(servers: str, topic: str, group: str, number: str) -> None:
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    # The demo shows what happens to the group and the brokers. Warnings of its clients would only repeat it.
    logging.getLogger("ottla").addHandler(logging.NullHandler())
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ranges = Ranges()
    with Consumer(
        bootstrap_servers=servers,
        group_id=group,
        client_id=f"member-{number}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
    ) as consumer:
        consumer.subscribe([topic])
        reported = time.monotonic()
        while not ended:
            for key, records in consumer.poll(0.2, max_records=5_000).by_partition().items():
                ranges.add(key.partition, records[0].offset, records[-1].offset + 1)
            if time.monotonic() - reported >= COMMIT_SECONDS:
                reported = time.monotonic()
                report_and_commit(consumer, ranges)
        report_and_commit(consumer, ranges)


def report_and_commit(consumer: Consumer, ranges: Ranges) -> None:
    assigned = sorted(key.partition for key in consumer.assignment())
    print(json.dumps({"assigned": assigned, "read": ranges.found}), flush=True)
    try:
        consumer.commit()
    except CommitFailed:
        pass  # the partition has a new owner, which reads these records again


if __name__ == "__main__":
    main(*sys.argv[1:])
