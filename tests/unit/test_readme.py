"""The first program in the README runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_first_example_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(blocks[0])
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=90, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("listening on 127.0.0.1:")
    seen = [line.split(" ", 2)[2] for line in lines[1:]]
    assert sorted(seen) == sorted(f"customer-{number % 3} {{'order': {number}}}" for number in range(10))
