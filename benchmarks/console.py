"""How fast the console shows a large cluster, and what it costs when it is idle.

    python benchmarks/console.py [--partitions 10000] [--groups 1000] [--json FILE]

A broker and a console run as processes of their own. The first page is measured from the request to the last byte,
right after the start of the console, when nothing has been read. Then: pages when everything has been read, how long a
round of the collector takes, and the CPU time of the console and the broker with no page open and with one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla import Admin, NewTopic, Producer, TopicPartition

PARTITIONS_OF_A_TOPIC = 20
IDLE_SECONDS = 20
SAMPLES = 20
COUNTED = re.compile(rb"<dt>Partitions</dt><dd>[0-9]")


@contextmanager
def process(*arguments: str) -> Iterator[tuple[int, str]]:
    """Run an ottla command; yields its pid and its first line."""
    command = [sys.executable, "-m", "ottla", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        try:
            yield running.pid, running.stdout.readline()
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(30)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(url: str) -> tuple[float, int]:
    """Milliseconds until the last byte, and the number of bytes."""
    began = time.perf_counter()
    with urllib.request.urlopen(url) as response:
        size = len(response.read())
    return (time.perf_counter() - began) * 1000, size


def fill(bootstrap: str, partitions: int, groups: int) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        count = max(partitions // PARTITIONS_OF_A_TOPIC, 1)
        names = [f"topic-{number:05}" for number in range(count)]
        for start in range(0, count, 50):
            some = names[start : start + 50]
            admin.create_topics([NewTopic(name, PARTITIONS_OF_A_TOPIC) for name in some], timeout_ms=120_000)
        with Producer(bootstrap_servers=bootstrap) as producer:
            for name in names:
                for partition in range(PARTITIONS_OF_A_TOPIC):
                    producer.send(name, value=b"unread", partition=partition)
        for number in range(groups):
            topic = names[number % count]
            offsets = {TopicPartition(topic, one): 0 for one in range(PARTITIONS_OF_A_TOPIC)}
            admin.alter_group_offsets(f"group-{number:05}", offsets)


def cpu_share(pids: dict[str, int], seconds: float) -> dict[str, float]:
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    return {name: round((cpu_seconds(pid) - before[name]) / seconds * 100, 2) for name, pid in pids.items()}


@contextmanager
def open_page(url: str) -> Iterator[list[float]]:
    """Do what a browser with the overview does: listen to changes, and load the page when there are some."""
    loaded: list[float] = []
    response = urllib.request.urlopen(f"{url}/live")
    ending = threading.Event()

    def follow() -> None:
        try:
            for line in response:
                if ending.is_set():
                    return
                if line.startswith(b"event: changed"):
                    loaded.append(load(f"{url}/")[0])
        except (OSError, ValueError, AttributeError):
            pass

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield loaded
    finally:
        ending.set()
        thread.join(20)
        response.close()


def measure(partitions: int, groups: int) -> dict[str, object]:
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with (
        tempfile.TemporaryDirectory(dir=memory) as directory,
        process("broker", "--data-dir", directory, "--listen", "127.0.0.1:0") as (broker_pid, line),
    ):
        bootstrap = line.partition("listening on ")[2].split()[0]
        fill(bootstrap, partitions, groups)
        firsts = [first_page(bootstrap) for _ in range(3)]
        with process("console", "-b", bootstrap, "--listen", "127.0.0.1:0") as (console_pid, line):
            found = measure_console(address(line), {"console": console_pid, "broker": broker_pid})
    return {
        "partitions": partitions,
        "groups": groups,
        "first_page_ms": [round(one[0]) for one in firsts],
        "first_page_bytes": [one[1] for one in firsts],
        "partitions_counted_ms": [round(one[2]) for one in firsts],
        **found,
    }


def first_page(bootstrap: str) -> tuple[float, int, float]:
    """Milliseconds of the first page, its bytes, and milliseconds until a page counts the partitions."""
    with process("console", "-b", bootstrap, "--listen", "127.0.0.1:0") as (_, line):
        began = time.perf_counter()
        took, size = load(address(line) + "/")
        while not COUNTED.search(urllib.request.urlopen(address(line)).read()):
            time.sleep(0.01)
        return took, size, (time.perf_counter() - began) * 1000


def address(line: str) -> str:
    return line.partition("console on ")[2].split()[0]


def measure_console(url: str, pids: dict[str, int]) -> dict[str, object]:
    nobody = cpu_share(pids, IDLE_SECONDS)
    began = time.perf_counter()
    while b"/groups/group-" not in urllib.request.urlopen(f"{url}/").read():
        time.sleep(0.1)
    everything = time.perf_counter() - began
    paths = ("/", "/topics", "/topics/topic-00000")
    warm = {path: [load(url + path)[0] for _ in range(SAMPLES)] for path in paths}
    with open_page(url) as loaded:
        time.sleep(10)
        one = cpu_share(pids, IDLE_SECONDS * 2)
    return {
        "everything_read_s": round(everything, 2),
        "warm_ms": {path: round(statistics.median(times), 1) for path, times in warm.items()},
        "warm_worst_ms": {path: round(max(times), 1) for path, times in warm.items()},
        "updates_of_an_open_page": len(loaded),
        "cpu_percent_without_pages": nobody,
        "cpu_percent_with_one_page": one,
        "console_mb": int(Path(f"/proc/{pids['console']}/statm").read_text().split()[1]) * 4096 // 10**6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = measure(args.partitions, args.groups)
    print(json.dumps(found, indent=2))
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
