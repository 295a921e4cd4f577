"""The thread of a producer that compresses full batches while others are filled and sent.

It needs the interpreter lock only to start and to end. In between it waits and works in C (`records/_lz4.pyx`), so the
caller's thread, the loop's and this one run at the same time.
"""

from __future__ import annotations

import threading
import weakref

from ottla.records.compression import Packer


class PackingThread:
    """Runs from `start` to `stop`, or until it is garbage collected."""

    NAME = "producer-packer"

    def __init__(self) -> None:
        self.packer = Packer()
        self._thread = threading.Thread(target=self.packer.run, name=self.NAME, daemon=True)
        weakref.finalize(self, self.packer.stop)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when it has ended, which takes no longer than one batch."""
        self.packer.stop()
        if self._thread.ident is not None:
            self._thread.join()
