"""Run Kafka's own programs on ottla: ``python -m tests.ecosystem [streams|connect|mirror|tools …]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.peer import Unavailable
from tests.ecosystem import connect, mirror, streams, tools
from tests.ecosystem.jvm import Failed, jars

PROGRAMS = {"streams": streams.run, "connect": connect.run, "mirror": mirror.run, "tools": tools.run}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *PROGRAMS], help="default: all of them")
    parser.add_argument("--kafka", action="store_true", help="on Apache Kafka, to check the programs themselves")
    options = parser.parse_args()
    try:
        jars()
    except Unavailable as problem:
        parser.exit(2, f"{problem}\n")
    failed = 0
    for name in options.names or PROGRAMS:
        begin = time.monotonic()
        with (
            tempfile.TemporaryDirectory(prefix=f"ottla-{name}-") as directory,
            (ApacheKafka if options.kafka else OttlaBroker)() as broker,
        ):
            try:
                found = PROGRAMS[name](broker, Path(directory))
            except Failed as problem:
                failed += 1
                found = f"FAILED: {problem}"
        print(f"{name}, {time.monotonic() - begin:.0f} s: {found}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
