"""The tests of examples/services run as a user runs them. The Spark job's are in tests/spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SERVICES = Path(__file__).parents[2] / "examples" / "services"


def test_the_services_pass_their_tests(tmp_path: Path) -> None:
    files = ["test_shop_api.py", "test_billing_worker.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(SERVICES), *files],
        cwd=SERVICES, timeout=120, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("........"), "all eight ran"
