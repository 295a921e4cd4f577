"""Spark with the jars of Delta and Iceberg reads and changes tables that ottla wrote: `make compat-jars`."""

from __future__ import annotations

import os

import pytest

if not os.environ.get("OTTLA_JARS"):
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/jars/"):
            item.add_marker(pytest.mark.timeout(900))
