"""At most once: commit first, then process. A crash loses records, but repeats none.

    python examples/at_most_once.py localhost:9092 orders results.db

Writes orders to a table, one row per record. `--crash-after N` ends the process abruptly, like a power cut.
"""

from __future__ import annotations

import argparse
import os
import sqlite3

from ottla import Consumer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("database")
    parser.add_argument("--crash-after", type=int, default=-1)
    args = parser.parse_args()
    database = sqlite3.connect(args.database)
    database.execute("CREATE TABLE IF NOT EXISTS results (partition INT, offset INT, value TEXT)")
    processed = 0
    with Consumer(
        bootstrap_servers=args.servers,
        group_id="at-most-once",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=10,
        session_timeout_ms=6000,  # after a crash, the next run waits for this time
    ) as consumer:
        consumer.subscribe([args.topic])
        while records := consumer.poll(10.0):
            consumer.commit()  # from now on, these records are not read again
            for record in records:
                row = (record.partition, record.offset, record.value.decode())
                database.execute("INSERT INTO results VALUES (?, ?, ?)", row)
                database.commit()
                processed += 1
                if processed == args.crash_after:
                    os._exit(1)


if __name__ == "__main__":
    main()
