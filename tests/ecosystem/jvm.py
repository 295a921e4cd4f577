"""Programs from Kafka's jars, each in its own process that can be killed and started again."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.apache_kafka import KAFKA, KAFKA_VERSION, class_path, find_java

HERE = Path(__file__).parent / "java"
ARTIFACTS = (
    *KAFKA,
    *(
        f"org.apache.kafka:{name}:{KAFKA_VERSION}"
        for name in (
            "kafka-tools",
            "kafka-streams",
            "connect-runtime",
            "connect-file",
            "connect-json",
            "connect-mirror",
        )
    ),
)
SECONDS = 300.0
_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class Failed(AssertionError):
    """Something that Kafka's programs do on Kafka did not work."""


def jars() -> str:
    """Return the class path of Kafka's programs. Maven downloads the jars on first use."""
    return class_path("ecosystem", ARTIFACTS)


def until(is_done: Callable[[], object], what: str, *programs: Program) -> None:
    """Wait for a condition; raises `Failed`, with the last output of `programs`, if it takes too long."""
    deadline = time.monotonic() + SECONDS
    while not is_done():
        if time.monotonic() > deadline:
            raise Failed("\n".join([f"after {SECONDS:g} s: {what}", *(each.last_output() for each in programs)]))
        time.sleep(0.05)


class Program:
    """A Java program: a class of the jars, or a source file of this directory."""

    def __init__(self, directory: Path, name: str, main: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.output = directory / f"{name}.txt"
        log4j = directory / "log4j2.properties"
        log4j.write_text(_LOG4J)
        source = HERE / f"{main}.java"
        # Compiled only by the first compiler: the programs run for seconds.
        flags = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={log4j}"]
        self._command = [find_java(), *flags, "-cp", jars(), str(source) if source.exists() else main, *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `says` waits for what it prints."""
        dies_too = [setpriv, "--pdeathsig", "KILL"] if (setpriv := shutil.which("setpriv")) else []
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*dies_too, *self._command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """Send SIGKILL. Does nothing if it does not run."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM and wait for the end."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failed(f"{self.name} did not stop within 60 s of SIGTERM\n{self.last_output()}") from None

    def says(self, pattern: str, times: int = 1) -> None:
        """Wait until it has printed a pattern that often."""
        until(
            lambda: self._has_ended() or len(re.findall(pattern, self.text())) >= times,
            f"{self.name} has not printed {pattern!r}",
            self,
        )
        if self._has_ended():
            raise Failed(f"{self.name} has ended\n{self.last_output()}")

    def text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def last_output(self) -> str:
        return "\n".join(self.text().splitlines()[-30:])

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None


@contextmanager
def running(*programs: Program) -> Iterator[None]:
    """Start programs; what still runs at the end is killed."""
    try:
        for program in programs:
            program.start()
        yield
    finally:
        for program in programs:
            program.kill()
