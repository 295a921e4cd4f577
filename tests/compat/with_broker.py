"""Start a broker, run a script against it, and exit with the script's exit code.

python -m tests.compat.with_broker SCRIPT             SCRIPT HOST:PORT, while the broker runs
python -m tests.compat.with_broker --files SCRIPT     SCRIPT DIR, after the broker has stopped, on its files
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.unit.broker.wire import Wire

import ottla
from ottla.records import Compression, Record, encode_batch


def main() -> int:
    script = sys.argv[-1]
    with tempfile.TemporaryDirectory(prefix="ottla-compat-") as directory:
        with ottla.Broker(directory) as broker:
            if "--files" not in sys.argv:
                return subprocess.run([script, broker.bootstrap_servers], check=False).returncode
            write_some_of_everything(broker.bootstrap_servers)
        return subprocess.run([script, directory], check=False).returncode


def write_some_of_everything(bootstrap_servers: str) -> None:
    """Fill topics with small segments, one topic per compression type."""
    with Wire(bootstrap_servers) as wire:
        for compression in Compression:
            topic = f"dump-{compression.name.lower()}"
            wire.create_topic(topic, segment_bytes="1048576")
            for number in range(50):
                records = [Record(n, 1_700_000_000_000 + n, b"key", b"%d " % number * 5000) for n in range(10)]
                wire.produce(topic, encode_batch(records, compression=compression))


if __name__ == "__main__":
    assert Path("src").is_dir(), "run it from the root of the repository"
    sys.exit(main())
