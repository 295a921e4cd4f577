"""A member in a separate process, which can be killed. It reports its events as lines of JSON on stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from ..clients.base import TP, ClientError
from .members import LEAVE_SECONDS, Journal, Member, Options, Owners, Read

TESTS = Path(__file__).parents[2]


class MemberProcess:
    """The member as its parent sees it."""

    def __init__(self, kind: str, options: Options, journal: Journal) -> None:
        self.options, self.journal = options, journal
        given = json.dumps({"kind": kind, "options": asdict(options)})
        command = [sys.executable, "-c", f"from {__name__} import main; main()", given]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": _path()}
        )
        self._reader = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        self.owned: frozenset[TP] = frozenset()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def _listen(self, output: IO[bytes]) -> None:
        for line in output:
            if not line.endswith(b"\n"):
                return  # the process was killed while it wrote
            what, content = json.loads(line)
            if what == "owned":
                self.owned = frozenset(TP(*tp) for tp in content)
            elif what == "read":
                self.journal.read(Read(*read) for read in content)
            elif what == "failed":
                self.journal.failed(ClientError(*content))
            else:
                getattr(self.journal, what)(TP(*tp) for tp in content)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._process.kill()
        self._end()

    def begin_to_leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def leave(self) -> None:
        self.begin_to_leave()
        self._end()

    def _end(self) -> None:
        self._process.wait(LEAVE_SECONDS)
        self._reader.join(LEAVE_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self.owned = frozenset()


def _path() -> str:
    return os.pathsep.join([str(TESTS), *filter(None, sys.path)])


class Telling(Journal):
    """A journal that the parent reads. A record is reported before it can be committed."""

    def __init__(self, member: str) -> None:
        super().__init__(member, Owners())
        self._lock = threading.Lock()

    def tell(self, what: str, content: Any) -> None:
        with self._lock:
            sys.stdout.write(json.dumps([what, content]) + "\n")
            sys.stdout.flush()

    def read(self, records: Iterable[Read]) -> None:
        found = list(records)
        super().read(found)
        if found:
            self.tell("read", found)

    def assigned(self, partitions: Iterable[TP]) -> None:
        self.tell("assigned", list(partitions))

    def revoked(self, partitions: Iterable[TP]) -> None:
        self.tell("revoked", list(partitions))

    def lost(self, partitions: Iterable[TP]) -> None:
        self.tell("lost", list(partitions))

    def failed(self, error: ClientError) -> None:
        self.tell("failed", [error.code, str(error)])


def main() -> None:
    """The child process: be a member until the parent closes stdin."""
    from .drivers import DRIVERS

    given = json.loads(sys.argv[1])
    options = Options(**{**given["options"], "topics": tuple(given["options"]["topics"])})
    journal = Telling(options.client_id)
    member = Member(DRIVERS[given["kind"]], options, journal).start()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    told: frozenset[TP] = frozenset()
    while not ended.wait(0.02) and member.is_running:
        if member.owned != told:
            told = member.owned
            journal.tell("owned", sorted(told))
    member.leave()
