"""Values that are made of files, and made again when the files change."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from ottla.errors import ConfigError

logger = logging.getLogger("ottla.security")
#: How often to look whether the files have changed, at most.
CHECK_SECONDS = 1.0
#: Files that cannot be used are tried again after so many times the time that it takes. A PKCS12 store can take half a
#: second, in which nobody else is served.
REST = 100
T = TypeVar("T")


class Reloading(Generic[T]):
    """A value of some files. If they change and cannot be used, the old value stays.

    `name` is what the log calls the owner of the value.
    """

    def __init__(self, make: Callable[[], T], paths: Sequence[str | None], name: str) -> None:
        self._make = make
        self._paths = [Path(path) for path in paths if path is not None]
        self._name = name
        self._stamps = self._present_stamps()
        self._value = make()
        self._checked_at = time.monotonic()
        self._problem = ""
        """Why the present files cannot be used. Other things than their content may be the reason, so try again."""
        self._try_again_at = 0.0

    def current(self) -> T:
        """Return the value of the present files."""
        now = time.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            self._read_if_changed(now)
        return self._value

    def _read_if_changed(self, now: float) -> None:
        stamps = self._present_stamps()
        if stamps == self._stamps and (not self._problem or now < self._try_again_at):
            return
        self._stamps = stamps
        try:
            self._value = self._make()
        except ConfigError as error:
            if str(error) != self._problem:
                logger.error("%s keeps its old certificates: %s", self._name, error)
            self._problem = str(error)
            end = time.monotonic()
            self._try_again_at = end + REST * (end - now)
        else:
            self._problem = ""
            logger.info("%s uses new certificates", self._name)

    def _present_stamps(self) -> list[tuple[int, ...] | None]:
        """Return what changes when the files are replaced or written, or others may read them."""
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode
