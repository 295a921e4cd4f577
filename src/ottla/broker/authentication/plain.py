"""PLAIN: user name and password, checked against the JAAS config of the listener and the users of the metadata."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from ottla.broker.authentication.conversations import Conversation, Login, Step
from ottla.broker.authentication.workers import Workers
from ottla.errors import SaslAuthenticationFailed
from ottla.metadata import Metadata
from ottla.security.scram import Credential, ScramMechanism, is_password, pretended


class Plain:
    """Begins conversations. No password of a user in the metadata is stored, only the keys of SCRAM."""

    def __init__(self, configured: Mapping[str, str], metadata: Metadata, workers: Workers) -> None:
        """``configured`` are the passwords of the users in the JAAS config."""
        self._configured = configured
        self._metadata = metadata
        self._workers = workers

    def __call__(self) -> Conversation:
        return self._hear

    async def _hear(self, message: bytes) -> Step:
        authorization, name, password = _read(message)
        if not await self._is_right(name, password):
            raise SaslAuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization not in ("", name):
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Step(b"", Login(name))

    async def _is_right(self, name: str, password: str) -> bool:
        configured = self._configured.get(name)
        if configured is not None and hmac.compare_digest(_bytes(configured), _bytes(password)):
            return True
        # A user that does not exist, or is only in the JAAS config, takes as long as a wrong password.
        mechanism, credential = self._credential(name)
        return await self._workers.run(is_password, mechanism, credential, password)

    def _credential(self, name: str) -> tuple[ScramMechanism, Credential]:
        users = self._metadata.users
        for mechanism in ScramMechanism:
            if (found := users.credential(name, mechanism)) is not None:
                return mechanism, found
        mechanism = ScramMechanism.SCRAM_SHA_256
        return mechanism, pretended(mechanism, name, self._metadata.cluster_id, *users.usual_kind)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _read(message: bytes) -> tuple[str, str, str]:
    """Return authorization id, user name and password."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        parts = []
    if len(parts) != 3:
        raise SaslAuthenticationFailed("Invalid SASL/PLAIN response: expected 3 tokens")
    authorization, name, password = parts
    for what, value in (("username", name), ("password", password)):
        if not value:
            raise SaslAuthenticationFailed(f"Authentication failed: {what} not specified")
    return authorization, name, password
