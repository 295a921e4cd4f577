"""More partitions than file descriptors: everything can be written and read, also after a restart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, resource, sys
limit, partitions, data_dir = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
import ottla
from unit.broker.wire import Wire, batch, fetch_request

def fetch(wire, offsets):
    wanted = [{"partition": index, "fetch_offset": at, "partition_max_bytes": 1 << 20} for index, at in offsets.items()]
    message = fetch_request("orders", 0, max_bytes=50 << 20) | {"topics": [{"topic": "orders", "partitions": wanted}]}
    answer = wire.call(1, 12, message)
    found = [each for topic in answer.responses for each in topic.partitions]
    assert {each.error_code for each in found} == {0}, found
    return {each.partition_index: bytes(each.records) for each in found if each.records}

for turn in range(2):
    with ottla.Broker(data_dir) as broker, Wire(broker.bootstrap_servers) as wire:
        if not turn:
            wire.create_topic("orders", partitions)
        for index in range(partitions):
            assert wire.produce("orders", batch(b"value %d" % turn), partition=index).error_code == 0
        offsets = dict.fromkeys(range(partitions), 0)
        for _ in range(10 * partitions):
            for index, records in fetch(wire, offsets).items():
                offsets[index] += records.count(b"value")
            if set(offsets.values()) == {turn + 1}:
                break
        else:
            raise SystemExit(f"not everything was read: {offsets}")
        print(len(os.listdir("/proc/self/fd")))
"""


def run(tmp_path: Path, limit: int, partitions: int) -> None:
    here = Path(__file__).parents[2]
    path = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(limit), str(partitions), str(tmp_path)],
        capture_output=True, text=True, timeout=280, env=os.environ | {"PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(int(count) < limit for count in done.stdout.split())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the number of descriptors is read from /proc")
class TestFewDescriptors:
    def test_hundreds_of_partitions(self, tmp_path: Path) -> None:
        run(tmp_path, limit=300, partitions=600)

    @pytest.mark.long
    def test_ten_thousand_partitions(self, tmp_path: Path) -> None:
        run(tmp_path, limit=1024, partitions=10_000)
