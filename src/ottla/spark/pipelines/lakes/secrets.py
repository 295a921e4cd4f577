"""Settings of catalogs and object stores, and errors that must not show them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ottla.errors import OttlaError
from ottla.spark.pipelines.lakes.contract import LakeError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NAMES = re.compile(r"secret|passw|token|credential|key|uri|sas|auth|connection", re.IGNORECASE)
_IN_A_URL = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]+@")
_LONGEST = 500


class Secrets:
    """Values that errors must not show."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        long_enough = [value for name, value in settings.items() if _NAMES.search(name) and len(value) > 3]
        self._values = sorted(long_enough, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """The text without the values, in one line.

        >>> Secrets({"s3.secret-access-key": "hush"}).hidden("no access with hush to sql://me:word@host/db")
        'no access with *** to sql://me:***@host/db'
        """
        text = " ".join(_COLOURS.sub("", text).replace("↳", " ").split())
        for value in self._values:
            text = text.replace(value, "***")
        return _IN_A_URL.sub(r"\1:***@", text)[:_LONGEST]

    @contextmanager
    def told(self, what: str, known: type[OttlaError] = LakeError, *errors: type[BaseException]) -> Iterator[None]:
        """Raise errors of a package as LakeError, and `errors` as `known`, without secrets."""
        try:
            yield
        except OttlaError:
            raise
        except Exception as error:
            kind = known if errors and isinstance(error, errors) else LakeError
            raise kind(f"{what}: {self.hidden(str(error)) or type(error).__name__}") from None
