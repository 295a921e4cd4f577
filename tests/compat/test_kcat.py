"""kcat, if installed: produce, consume, metadata and offsets by time from the command line."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from .conftest import MakeTopic

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")


def kcat(bootstrap_servers: str, *arguments: str, given: str | None = None) -> str:
    assert KCAT is not None
    done = subprocess.run(
        [KCAT, "-b", bootstrap_servers, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_kcat_produces_it_consumes(bootstrap_servers: str, make_topic: MakeTopic, compression: str) -> None:
    topic = make_topic()
    kcat(bootstrap_servers, "-P", "-t", topic, "-z", compression, "-K:", "-H", "h=1", given="k1:v1\nk2:v2\n")
    found = kcat(bootstrap_servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%o %k %s %h\n")
    assert found == "0 k1 v1 h=1\n1 k2 v2 h=1\n"


def test_kcat_lists_topics_and_offsets(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    assert f'topic "{topic}" with 3 partitions' in kcat(bootstrap_servers, "-L", "-t", topic)
    kcat(bootstrap_servers, "-P", "-t", topic, "-p", "1", given="a\nb\n")
    assert "offset 2" in kcat(bootstrap_servers, "-Q", "-t", f"{topic}:1:-1")
