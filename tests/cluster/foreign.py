"""A client of another language writes and reads while leaders die, and the checker judges what it printed.

python -m tests.cluster.foreign tests/compat/run_java.sh
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from typing import TextIO

import ottla
from ottla.types import TopicPartition

from .checker import Acked, History, Read, Sent, check, summary
from .clusters import PlainCluster
from .loads import read_replicas
from .trial import BROKER

TOPIC = "orders"
PLACES = [TopicPartition(TOPIC, index) for index in range(3)]
DEATHS = 4
AT_ONCE = 200
PATIENCE = 120.0
_LINE = re.compile(r"(SENT|ACK|READ|FAIL) (\d+) (-?\d+) (.*)")


class Listener(threading.Thread):
    """Turns the lines of the client into a history."""

    def __init__(self, lines: TextIO) -> None:
        super().__init__(daemon=True)
        self.history = History()
        self.problems: list[str] = []
        self._lines = lines

    def run(self) -> None:
        for line in self._lines:
            # Maven writes codes for colours before the first line.
            found = _LINE.search(line)
            if found is None:
                print(line, end="", flush=True)
            else:
                self._take(found[1], PLACES[int(found[2])], int(found[3]), found[4])

    def _take(self, what: str, place: TopicPartition, offset: int, text: str) -> None:
        match what:
            case "SENT":
                self.history.sent.append(Sent("client", place, text.encode()))
            case "ACK":
                self.history.acked.append(Acked(place, offset, text.encode()))
            case "READ":
                self.history.reads["client", place].append(Read(offset, text.encode()))
            case _:
                self.problems.append(text)

    def await_progress(self) -> None:
        """Wait until some more records are acknowledged and read."""
        before, deadline = self._counts(), time.monotonic() + PATIENCE
        while any(now < then + AT_ONCE for now, then in zip(self._counts(), before, strict=True)):
            if time.monotonic() > deadline or not self.is_alive():
                raise SystemExit(f"the client does not get on: {before}, {self._counts()}, {self.problems[:5]}")
            time.sleep(0.05)

    def _counts(self) -> tuple[int, int]:
        return len(self.history.acked), sum(map(len, self.history.reads.values()))


def main() -> int:
    script = sys.argv[1]
    with PlainCluster(config=BROKER, isolation=False) as cluster:
        with ottla.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics(ottla.NewTopic(TOPIC, num_partitions=len(PLACES)))
        command = [script, cluster.bootstrap_servers, TOPIC]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            listener = Listener(client.stdout)
            listener.start()
            listener.await_progress()
            for number in range(DEATHS):
                leader = cluster.leader_of(TOPIC, number % len(PLACES))
                leader.kill()
                listener.await_progress()
                leader.start()
                cluster.wait_until_replicated()
            client.stdin.write("\n")
            client.stdin.flush()
            code = client.wait(PATIENCE)
            listener.join(PATIENCE)
        history = listener.history
        directories = {broker.id: broker.data_dir for broker in cluster.brokers.values()}
        history.replicas, ends, differences = read_replicas(directories, PLACES)
    for place in PLACES:
        if len(history.reads["client", place]) != ends[place]:
            differences.append(f"the client has read {len(history.reads['client', place])} of {ends[place]} in {place}")
    problems = [*listener.problems, *differences, *summary(check(history))]
    print(f"{DEATHS} leaders killed, {len(history.sent)} records sent, {len(history.acked)} acknowledged")
    print("\n".join(problems) or "nothing is lost or duplicated")
    return 1 if problems or code else 0


if __name__ == "__main__":
    sys.exit(main())
