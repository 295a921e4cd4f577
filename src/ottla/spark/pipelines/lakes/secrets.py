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
#: What Rust adds for its developers.
_BACKTRACE = re.compile(r"\s+0: \S.*?\s1: .*", re.DOTALL)
_LONGEST = 350
_REACH = "Check that it runs and that its address is right, then run this again"
#: What to do about an error, by a part of its message.
_ADVICE = (
    ("URI missing", "Set uri in catalog, or name to that of a catalog in .pyiceberg.yaml"),
    ("No default path is set", "Set warehouse in catalog: the directory or URL for new tables"),
    ("URL scheme is not allowed", 'Set aws_allow_http = "true" in storage'),
    ("Account must be specified", "Set azure_storage_account_name in storage"),
    ("loading credentials", "Set aws_access_key_id and aws_secret_access_key in storage"),
    ("Generic S3 error", "Check storage, and that the object store can be reached, then run this again"),
    ("AWS Error", "Check storage, and that the object store can be reached, then run this again"),
    ("Max retries exceeded", _REACH),
    ("timed out", _REACH),
    ("refused", _REACH),
    ("unable to open database file", "Check that the directory of uri in catalog exists and can be written"),
)
#: Messages of which only the advice is right here.
_REPLACED = ("URI missing", "No default path is set")


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
        text = " ".join(_BACKTRACE.sub("", _COLOURS.sub("", text)).replace("↳", " ").split())
        for value in self._values:
            text = text.replace(value, "***")
        return _IN_A_URL.sub(r"\1:***@", text)[:_LONGEST]

    def described(self, error: Exception) -> str:
        """An error without the values, and with what to do if that is known.

        >>> Secrets({}).described(OSError("connection refused"))
        'connection refused. Check that it runs and that its address is right, then run this again'
        """
        text = self.hidden(str(error)) or type(error).__name__
        sign, advice = next(((sign, advice) for sign, advice in _ADVICE if sign in str(error)), ("", ""))
        if sign in _REPLACED:
            return advice
        return f"{text.removesuffix('.')}. {advice}" if advice else text

    @contextmanager
    def told(self, what: str, known: type[OttlaError] = LakeError, *errors: type[BaseException]) -> Iterator[None]:
        """Raise errors of a package as LakeError, and `errors` as `known`, without secrets."""
        try:
            yield
        except OttlaError:
            raise
        except Exception as error:
            kind = known if errors and isinstance(error, errors) else LakeError
            raise kind(f"{what}: {self.described(error)}") from None
