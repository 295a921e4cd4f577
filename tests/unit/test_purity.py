"""Pure packages get time and random values as arguments. They import no clock, no randomness and no I/O."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import ottla

ROOT = Path(ottla.__file__).parent
PURE = (
    "protocol", "records", "config", "assignors", "metadata", "coordinator", "transactions", "producing", "consuming",
    "replication", "security", "monitoring", "registry",
)  # fmt: skip
IMPURE = {"asyncio", "os", "random", "secrets", "selectors", "socket", "subprocess", "threading", "time", "pathlib"}
EXCEPT = {"config/reference.py": {"pathlib"}, "config/secrets.py": {"os", "pathlib"}}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0]


def test_pure_packages_import_nothing_impure() -> None:
    files = [
        ROOT / "machine.py",
        ROOT / "driver.py",
        ROOT / "timers.py",
        *(path for package in PURE for path in (ROOT / package).rglob("*.py")),
    ]
    found = {
        str(path.relative_to(ROOT)): bad
        for path in files
        if (bad := set(imported(path)) & IMPURE - EXCEPT.get(str(path.relative_to(ROOT)), set()))
    }
    assert found == {}


def test_machines_never_read_a_default_time() -> None:
    """``now`` is keyword-only and has no default: a missing argument cannot silently use real time."""
    wrong = []
    for path in [path for package in PURE for path in (ROOT / package).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            if any(argument.arg == "now" for argument in node.args.args):
                wrong.append(f"{path.name}:{node.lineno} {node.name}")
            for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if argument.arg == "now" and default is not None:
                    wrong.append(f"{path.name}:{node.lineno} {node.name}")
    assert wrong == []
