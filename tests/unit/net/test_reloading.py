"""When the files of a value are read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.errors import ConfigError
from ottla.net import reloading
from ottla.net.reloading import REST, Reloading


def test_files_that_cannot_be_used_are_seldom_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open a store takes long, and nobody else is served meanwhile."""
    now, takes, tried = 0.0, 0.5, 0
    monkeypatch.setattr(reloading.time, "monotonic", lambda: now)
    file = tmp_path / "store"
    file.write_text("good")

    def make() -> str:
        nonlocal now, tried
        now += takes
        tried += 1
        if (text := file.read_text()) == "bad":
            raise ConfigError("bad")
        return text

    value = Reloading(make, [str(file)], "the listener")
    file.write_text("bad")
    for _ in range(REST):
        now += 1
        assert value.current() == "good"
    assert tried <= 4
    file.write_text("better")
    now += 1
    assert value.current() == "better"
