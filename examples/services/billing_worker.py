"""A worker that writes an invoice for each order into a database, and bills nobody twice.

    python billing_worker.py localhost:9092 invoices.db

It commits after processing, so a crash or a lost session repeats records. The order id is the primary key of the
invoices, so a repetition changes nothing.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable

from ottla import CommitFailed, Consumer, ConsumerRecord

TOPIC, GROUP = "orders", "billing"


class Worker:
    """Reads orders as a member of the group."""

    def __init__(self, servers: str, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute("CREATE TABLE IF NOT EXISTS invoices (order_id INT PRIMARY KEY, total INT)")
        self.consumer = Consumer(
            bootstrap_servers=servers,
            group_id=GROUP,
            client_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )
        self.consumer.subscribe([TOPIC])
        self.before_commit: Callable[[], None] = lambda: None
        """Called between the invoices of a poll and its commit. Tests break things here."""

    def work(self, seconds: float = 0.2) -> int:
        """Process what one poll returns, and return how many records that was."""
        records = self.consumer.poll(seconds)
        for record in records:
            self._bill(record)
        if records:
            self._database.commit()
            self.before_commit()
            try:
                self.consumer.commit()
            except CommitFailed:
                pass  # Another member has the partitions now, and will see these orders again.
        return len(records)

    def _bill(self, record: ConsumerRecord) -> None:
        order = json.loads(record.value)
        self._database.execute("INSERT OR IGNORE INTO invoices VALUES (?, ?)", (order["id"], order["total"]))

    def close(self) -> None:
        self.consumer.close()


def main() -> None:
    worker = Worker(sys.argv[1], sqlite3.connect(sys.argv[2]))
    try:
        while True:
            worker.work(1.0)
    finally:
        worker.close()


if __name__ == "__main__":
    main()
