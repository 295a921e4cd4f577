"""A process with one consumer of ottla's own, for the designs *classic* and *consumer*.

It waits for ``start``, then polls. It tells what it takes and drops. After ``leave`` it waits for the next ``start``.
"""

from __future__ import annotations

import json
import queue
import sys
import time
from collections.abc import Collection
from typing import Any

from ottla.clients.consumer.blocking import Consumer
from ottla.consuming.values import RebalanceListener
from ottla.lab.real.speech import commands, say
from ottla.types import TopicPartition

POLL_MS = 100


class Teller(RebalanceListener):
    """Tells the lab what moves."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        say("took", partitions=[key.partition for key in partitions])

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        say("dropped", partitions=[key.partition for key in partitions])


def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    asked = commands()
    consumer: Consumer | None = None
    busy_until = 0.0
    say("ready")
    while True:
        try:
            command = asked.get(block=consumer is None)
        except queue.Empty:
            command = {}
        if command is None:
            return
        if command.get("do") == "start":
            given = {"client.id": command["name"], **spec["config"]}
            if command["instance"] is not None:
                given["group.instance.id"] = command["instance"]
            consumer = Consumer(given)
            consumer.subscribe([spec["topic"]], listener=Teller())
        elif command.get("do") == "slow":
            busy_until = time.monotonic() + command["ms"] / 1000
        elif command.get("do") == "leave" and consumer is not None:
            consumer.close()
            consumer = None
            say("left")
        if consumer is not None:
            if time.monotonic() >= busy_until:
                consumer.poll(timeout_ms=POLL_MS)
            else:
                time.sleep(POLL_MS / 1000)


if __name__ == "__main__":
    main()
