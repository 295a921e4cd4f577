"""Exactly once, from topic to topic: results and offsets in one transaction. A crash loses nothing and repeats nothing.

    python examples/exactly_once_transactions.py localhost:9092 orders invoices

Reads orders and writes an invoice for each. Invoices and offsets are committed together, so a consumer of the invoices
with `isolation.level=read_committed` sees each of them once. Every instance needs its own transactional id
(`--instance`), by which the broker recognizes a restarted instance and aborts its open transaction. `--crash-after N`
ends the process in the middle of a transaction.
"""

from __future__ import annotations

import argparse
import os

from ottla import Consumer, KafkaError, Producer, TopicPartition


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--instance", default="0")
    parser.add_argument("--patience", type=float, default=10.0, help="exit after this many seconds without records")
    parser.add_argument("--crash-after", type=int, default=-1)
    args = parser.parse_args()
    processed = 0
    with (
        Producer(bootstrap_servers=args.servers, transactional_id=f"invoices-{args.instance}") as producer,
        Consumer(
            bootstrap_servers=args.servers,
            group_id="invoices",
            enable_auto_commit=False,  # offsets are committed by the producer, in the transaction
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=10,
            session_timeout_ms=6000,  # after a crash, the next run waits for this time
        ) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe([args.source])
        while records := consumer.poll(args.patience):
            try:
                with producer.transaction():  # commits at the end, aborts after an exception
                    for record in records:
                        producer.send(args.target, b"invoice for " + record.value, key=record.key)
                        processed += 1
                        if processed == args.crash_after:
                            producer.flush()
                            os._exit(1)
                    offsets = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
                    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            except KafkaError as error:
                if error.remedy in ("stop", "retry"):  # fenced; or the broker is away: the next start sorts it out
                    raise
                read_again(consumer)


def read_again(consumer: Consumer) -> None:
    """After an abort, seek back to the committed offsets."""
    for key, committed in consumer.committed(consumer.assignment()).items():
        if committed is None:
            consumer.seek_to_beginning(key)
        else:
            consumer.seek(key, committed.offset)


if __name__ == "__main__":
    main()
