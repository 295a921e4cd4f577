"""``--command-config``: client configs from a file, for every command that talks to a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.cli_results import Ottla


def test_configs_come_from_a_file(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\nrequest.timeout.ms = 20000\nclient.id=from-a-file\n")
    listed = ottla("topics", "list", "--command-config", str(file), "-q")
    assert (listed.code, topic in listed.text) == (0, True)
    assert ottla("produce", topic, "--command-config", str(file), stdin=b"x\n").code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("security.protocol=SSL\n", "does not speak TLS"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.username=a\nsasl.password=b\n", "has no SASL"),
        ("securty.protocol=SSL\n", "Did you mean security.protocol?"),
        ("request.timeout.ms=soon\n", "expected a whole number"),
    ],
)
def test_what_is_wrong_with_it_is_told(ottla: Ottla, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    listed = ottla("topics", "list", "--command-config", str(file))
    assert listed.code != 0
    assert listed.err.count(message) == 1


def test_a_file_that_is_not_there_is_told(ottla: Ottla) -> None:
    listed = ottla("topics", "list", "--command-config", "/no/such/file")
    assert (listed.code, "cannot read /no/such/file" in listed.err) == (2, True)
