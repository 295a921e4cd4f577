"""Exactly once: results and offsets in one transaction of one database. A crash loses nothing and repeats nothing.

    python examples/exactly_once.py localhost:9092 orders results.db

The database, not the group, stores the position of each partition: reading continues there when a partition is
assigned. The group still distributes the partitions. `--crash-after N` ends the process abruptly.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
from collections.abc import Collection

from ottla import Consumer, RebalanceListener, TopicPartition

TABLES = """
CREATE TABLE IF NOT EXISTS results (partition INT, offset INT, value TEXT);
CREATE TABLE IF NOT EXISTS offsets (topic TEXT, partition INT, next INT, PRIMARY KEY (topic, partition));
"""


class ReadOn(RebalanceListener):
    """Seek to the positions in the database."""

    def __init__(self, consumer: Consumer, database: sqlite3.Connection) -> None:
        self.consumer = consumer
        self.database = database

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for key in partitions:
            query = "SELECT next FROM offsets WHERE topic = ? AND partition = ?"
            row = self.database.execute(query, (key.topic, key.partition)).fetchone()
            self.consumer.seek(key, row[0] if row else 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("database")
    parser.add_argument("--crash-after", type=int, default=-1)
    args = parser.parse_args()
    database = sqlite3.connect(args.database)
    database.executescript(TABLES)
    processed = 0
    with Consumer(
        bootstrap_servers=args.servers,
        group_id="exactly-once",
        enable_auto_commit=False,
        max_poll_records=10,
        session_timeout_ms=6000,  # after a crash, the next run waits for this time
    ) as consumer:
        consumer.subscribe([args.topic], listener=ReadOn(consumer, database))
        while records := consumer.poll(10.0):
            with database:  # one transaction: all of it is there after a crash, or nothing
                for record in records:
                    row = (record.partition, record.offset, record.value.decode())
                    database.execute("INSERT INTO results VALUES (?, ?, ?)", row)
                    place = (record.topic, record.partition, record.offset + 1)
                    database.execute("INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)", place)
                    processed += 1
                    if processed == args.crash_after:
                        os._exit(1)


if __name__ == "__main__":
    main()
