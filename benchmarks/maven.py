"""Download jars with Maven, which knows where they are.

    directory("kafka-4.2.0", ["org.apache.kafka:kafka_2.13:4.2.0"])

The jars and what they need are downloaded once, to $OTTLA_BENCH_CACHE (or ~/.cache/ottla-bench).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peer import Unavailable


def directory(name: str, artifacts: Sequence[str], *, alone: bool = False) -> Path:
    """Return the directory with the jars; `alone` leaves out what they need. `Unavailable` says what is missing."""
    target = cache() / name
    if not target.is_dir():
        _fetch(target, artifacts, alone)
    return target


def cache() -> Path:
    given = os.environ.get("OTTLA_BENCH_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "ottla-bench"


def _fetch(target: Path, artifacts: Sequence[str], alone: bool) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise Unavailable(f"{artifacts[0]} is not in {target}, and there is no mvn on the PATH to fetch it")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        pom, jars = Path(scratch, "pom.xml"), Path(scratch, "jars")
        pom.write_text(_pom(artifacts, alone))
        command = [mvn, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
            reason = errors[0] if errors else f"mvn ended with code {done.returncode}"
            raise Unavailable(f"Maven could not fetch {artifacts[0]}: {reason}")
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster
                raise


def _pom(artifacts: Sequence[str], alone: bool) -> str:
    fields = ("groupId", "artifactId", "version")
    nothing = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = (
        "".join(f"<{field}>{value}</{field}>" for field, value in zip(fields, artifact.split(":"), strict=True))
        + (nothing if alone else "")
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>ottla</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(f'<dependency>{each}</dependency>' for each in dependencies)}</dependencies></project>"
    )
