"""Exactly once with duplicates in the topic: every record has a unique key, and the reader drops what it has seen.

    python examples/exactly_once_unique_keys.py write localhost:9092 orders input.txt
    python examples/exactly_once_unique_keys.py read localhost:9092 orders results.db

The writer sends each line with a key that only this line has. After a crash it simply sends the file again. The reader
writes to a table whose primary key is that key, and a second row with a key is ignored. So any number of writers and
readers can crash and repeat. `--crash-after N` ends the process abruptly.
"""

from __future__ import annotations

import argparse
import os
import sqlite3

from ottla import Consumer, Producer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("write", "read"))
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("file")
    parser.add_argument("--patience", type=float, default=10.0, help="exit after this many seconds without records")
    parser.add_argument("--crash-after", type=int, default=-1)
    args = parser.parse_args()
    (write if args.what == "write" else read)(args)


def write(args: argparse.Namespace) -> None:
    with open(args.file, encoding="utf-8") as lines, Producer(bootstrap_servers=args.servers) as producer:
        for number, line in enumerate(lines, start=1):
            # The same line must get the same key in every attempt: from the data, never from a random number.
            producer.send(args.topic, line.rstrip("\n").encode(), key=f"{args.file}:{number}".encode())
            if number == args.crash_after:
                producer.flush()
                os._exit(1)


def read(args: argparse.Namespace) -> None:
    database = sqlite3.connect(args.file)
    database.execute("CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, value TEXT)")
    processed = 0
    with Consumer(
        bootstrap_servers=args.servers,
        group_id="unique-keys",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=10,
        session_timeout_ms=6000,  # after a crash, the next run waits for this time
    ) as consumer:
        consumer.subscribe([args.topic])
        while records := consumer.poll(args.patience):
            for record in records:
                database.execute("INSERT OR IGNORE INTO results VALUES (?, ?)", (record.key, record.value.decode()))
                database.commit()
                processed += 1
                if processed == args.crash_after:
                    os._exit(1)
            consumer.commit()  # after processing: a crash repeats records, which the table ignores


if __name__ == "__main__":
    main()
