"""Exactly once into a topic without transactions: one writer per partition, which resumes behind its last record.

    python examples/exactly_once_single_writer.py localhost:9092 lines input.txt

Copies the lines of a file to partition 0. Each record has the number of its line in a header. A start reads the last
record of the partition and goes on with the next line, so a crash repeats nothing and loses nothing. Nobody else may
write to the partition. `--crash-after N` ends the process abruptly after N lines, while some are on their way.
"""

from __future__ import annotations

import argparse
import os
import time

from ottla import Consumer, Producer, TopicPartition


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("file")
    parser.add_argument("--crash-after", type=int, default=-1)
    args = parser.parse_args()
    partition = TopicPartition(args.topic, 0)
    written = last_line(args.servers, partition)
    with open(args.file, encoding="utf-8") as lines, Producer(bootstrap_servers=args.servers) as producer:
        for number, line in enumerate(lines, start=1):
            if number <= written:
                continue
            headers = [("line", str(number).encode())]
            producer.send(args.topic, line.rstrip("\n").encode(), partition=0, headers=headers)
            if number - written == args.crash_after:
                os._exit(1)


def last_line(servers: str, partition: TopicPartition, settle_seconds: float = 1.0) -> int:
    """The number of the last line in the partition; 0 if it is empty."""
    with Consumer(bootstrap_servers=servers) as consumer:
        end = -1
        # A request of the process that crashed may still be on its way: wait until the end stays where it is.
        while (now := consumer.end_offsets([partition])[partition]) != end:
            end = now
            time.sleep(settle_seconds)
        if end == 0:
            return 0
        if consumer.beginning_offsets([partition])[partition] == end:
            raise SystemExit(f"all records of {partition} are deleted, so nobody knows where to resume")
        consumer.assign([partition])
        consumer.seek(partition, end - 1)
        while not (records := consumer.poll(5)):
            pass
        return int(dict(records[-1].headers)["line"])


if __name__ == "__main__":
    main()
