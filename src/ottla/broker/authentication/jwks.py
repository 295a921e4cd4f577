"""The public keys of an identity provider (JWKS, RFC 7517), from a file or a URL.

They are read again from time to time, and when a token names a key that is not known. A provider that cannot be reached
does not stop logins: the last keys stay valid.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from ottla.broker.authentication.workers import Workers
from ottla.config.security import ListenerSecurity
from ottla.errors import ConfigError

logger = logging.getLogger("ottla.security")
#: Larger key sets are refused.
MAX_BYTES = 1 << 20
READ_SECONDS = 10.0
#: Tokens with unknown keys make the broker read the keys again, but not more often than this.
LEAST_SECONDS_BETWEEN_READS = 10.0


class KeySet:
    """The keys of one listener."""

    def __init__(self, security: ListenerSecurity, workers: Workers) -> None:
        assert security.sasl_oauthbearer_jwks_endpoint_url is not None
        self._url = security.sasl_oauthbearer_jwks_endpoint_url
        self._workers = workers
        self._refresh_seconds = security.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
        self._backoff = (
            security.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000,
            security.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000,
        )
        self._keys: list[dict[str, Any]] = []
        self._read_at = 0.0
        self._reading: asyncio.Task[bool] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read the keys, and keep them up to date. A file that cannot be read is an error."""
        try:
            await self._read()
        except (OSError, ValueError) as error:
            if self.is_file:
                raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: cannot use {self._url}: {error}.") from None
            logger.warning("%s: tokens are refused until it can be read", _problem(self._url, error))
        self._refreshing = asyncio.ensure_future(self._refresh())

    @property
    def is_file(self) -> bool:
        return urlsplit(self._url).scheme == "file"

    async def find(self, key_id: str | None) -> list[dict[str, Any]]:
        """Return the keys that may have signed a token."""
        found = self._with(key_id)
        if not found and asyncio.get_running_loop().time() - self._read_at >= LEAST_SECONDS_BETWEEN_READS:
            await self._read_once()
            found = self._with(key_id)
        return found

    def _with(self, key_id: str | None) -> list[dict[str, Any]]:
        return [key for key in self._keys if key_id is None or key.get("kid") == key_id]

    async def _read_once(self) -> bool:
        """Read the keys, or wait for those who do: one thread is enough. Return whether it went well."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read_or_log())
        return await asyncio.shield(self._reading)

    async def _read_or_log(self) -> bool:
        try:
            await self._read()
        except (OSError, ValueError) as error:
            logger.warning("%s: the keys that are known stay valid", _problem(self._url, error))
            return False
        return True

    async def _read(self) -> None:
        self._read_at = asyncio.get_running_loop().time()
        self._keys = await self._workers.run(read_keys, self._url)

    async def _refresh(self) -> None:
        first, longest = self._backoff
        wait, backoff = self._refresh_seconds if self._keys else first, first
        while True:
            await asyncio.sleep(wait)
            if await self._read_once():
                wait, backoff = self._refresh_seconds, first
            else:
                wait, backoff = backoff, min(2 * backoff, longest)

    def close(self) -> None:
        for task in (self._refreshing, self._reading):
            if task is not None:
                task.cancel()


def _problem(url: str, error: Exception) -> str:
    parts = urlsplit(url)
    # Without the query and a user, which may have secrets.
    return f"cannot read the keys at {parts.scheme}://{parts.hostname or ''}{parts.path}: {error}"


def read_keys(url: str) -> list[dict[str, Any]]:
    """Read a key set. Raises OSError or ValueError."""
    try:
        with urllib.request.urlopen(url, timeout=READ_SECONDS) as response:
            text = response.read(MAX_BYTES + 1)
    except HTTPException as error:
        raise OSError(f"the server does not speak HTTP ({type(error).__name__})") from None
    if len(text) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list):
        raise ValueError('it is not a key set: {"keys": [...]}')
    public = [key for key in keys if isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP")]
    if not public:
        raise ValueError("it has no public key of the types RSA, EC or OKP")
    return public
