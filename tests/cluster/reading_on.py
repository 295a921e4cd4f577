"""A consumer that crashes: ``python -m tests.cluster.reading_on SERVERS TOPIC GROUP FILE COMMITS CRASH_AFTER``.

It hands records to a slower part of the program, as many programs do, and that part writes each one to a file. COMMITS
is ``automatic`` or ``after processing``. It ends without any farewell after CRASH_AFTER records, or at the end of
partition 0 if that is 0.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path

from ottla import Consumer, ConsumerRecord, TopicPartition

CRASHED = 9


def main(servers: str, topic: str, group: str, file: str, commits: str, crash_after: str) -> None:
    key = TopicPartition(topic, 0)
    is_automatic = commits == "automatic"
    waiting: deque[ConsumerRecord] = deque()
    processed = 0
    with Consumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=is_automatic,
        auto_commit_interval_ms=50,
    ) as consumer:
        consumer.assign([key])
        end = consumer.end_offsets([key])[key]
        while consumer.position(key) < end:
            waiting += consumer.poll(0.1)
            if is_automatic:
                _await_commit(consumer, key)
            while waiting:
                record = waiting.popleft()
                with Path(file).open("ab") as done:
                    done.write((record.value or b"") + b"\n")
                processed += 1
                if str(processed) == crash_after:
                    os._exit(CRASHED)
            if not is_automatic:
                consumer.commit()


def _await_commit(consumer: Consumer, key: TopicPartition) -> None:
    """Poll until an automatic commit has all records that were handed out."""
    deadline = time.monotonic() + 20
    while (found := consumer.committed([key])[key]) is None or found.offset < consumer.position(key):
        consumer.poll(0.05)
        assert time.monotonic() < deadline, f"nothing was committed but {found}"


if __name__ == "__main__":
    main(*sys.argv[1:])
