"""A sink with `max_delay`: good records are stored first, and a thread of its own runs its steps and writes the rows.

    <checkpoint>/shared/<source>/late/<sink>/12/    parquet files with the records of batch 12; complete with _SUCCESS

A batch of the shared read ends when its records are stored and the sink has written them, or when it has waited for
`max_delay`. From then on, batches do not wait for the sink until it has caught up. The next run writes what is left.
The thread writes under the number of the batch, so the sink is as exactly-once as the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.spark.pipelines.places import Place, place
from ottla.spark.sessions import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("ottla.spark")
COMPLETE = "_SUCCESS"


def stored(late: Place) -> list[int]:
    """The complete batches in a backlog, in order."""
    return sorted(int(name) for name in late.names() if name.isdecimal() and COMPLETE in late.names(name))


class Backlog:
    """The stored batches of a sink, and the thread that writes them."""

    def __init__(
        self,
        name: str,
        where: str,
        spark: SparkSession,
        write: Callable[[DataFrame, int], None],
        *,
        delay: float,
        finished: Callable[[int, bool], None] = lambda batch, caught_up: None,
    ) -> None:
        """`spark` is a session of its own. `delay` is in seconds. `write` gets the stored records of a batch;
        `finished` is called with a written batch, and whether it was the last one."""
        self.name = name
        self._where = where
        self._spark = spark
        self._write = write
        self._delay = delay
        self._finished = finished
        found = place(where, spark)
        assert found is not None, "a shared read requires a classic session"
        self._place = found
        self._changed = threading.Condition()
        self._batches = stored(found)
        self._is_behind = bool(self._batches)
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None

    @property
    def waiting(self) -> int:
        """The number of batches that are stored and not written yet."""
        with self._changed:
            return len(self._batches)

    def start(self) -> None:
        """Start the thread. What an earlier run stored in part is useless: the batch is repeated."""
        for name in self._place.names():
            if name.isdecimal() and int(name) not in self._batches:
                self._place.remove(name)
        self._thread = threading.Thread(target=self._run, name=f"late sink {self.name}", daemon=True)
        self._thread.start()

    def add(self, records: DataFrame, batch: int) -> None:
        """Store the records of a batch, unless they are stored since an earlier attempt."""
        self._raise()
        with self._changed:
            known = batch in self._batches
        if not known:
            records.write.mode("overwrite").parquet(f"{self._where}/{batch}")
        with self._changed:
            if not known:
                self._batches.append(batch)
            self._changed.notify_all()

    def wait(self, since: float) -> None:
        """Wait until everything is written, at most until `since` plus the delay. A late sink is not waited for."""
        deadline = since + self._delay
        with self._changed:
            while self._batches and not self._is_behind and self.error is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._is_behind = True
                    log.warning("sink %s is late: the others go on, and its records are stored until it can", self.name)
                    break
                self._changed.wait(left)
        self._raise()

    def close(self, seconds: float = 0.0) -> bool:
        """Write what is left for up to `seconds`, then stop; returns whether everything is written.

        A batch that is being written cannot be interrupted. It is repeated in the next run, and then skipped.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._batches and self.error is None and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            self._is_closed = True
            self._changed.notify_all()
            return not self._batches

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    # ── The thread ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            activate(self._spark)
            while (batch := self._next()) is not None:
                self._write(self._spark.read.parquet(f"{self._where}/{batch}"), batch)
                # In this order: what is left after a crash is not complete, so it does not count.
                self._place.remove(f"{batch}/{COMPLETE}")
                self._place.remove(str(batch))
                self._done(batch)
        except BaseException as error:
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def _next(self) -> int | None:
        with self._changed:
            while not self._batches and not self._is_closed:
                self._changed.wait()
            return None if self._is_closed else self._batches[0]

    def _done(self, batch: int) -> None:
        self._finished(batch, self.waiting == 1)
        with self._changed:
            self._batches.remove(batch)
            if not self._batches and self._is_behind:
                self._is_behind = False
                log.warning("sink %s has caught up", self.name)
            self._changed.notify_all()
