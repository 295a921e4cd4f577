"""SCRAM-SHA-256 and SCRAM-SHA-512 with the users of the metadata."""

from __future__ import annotations

import secrets

from ottla.broker.authentication.conversations import Conversation, Login, Step
from ottla.metadata import Metadata
from ottla.security.scram import Credential, ScramMechanism, login, pretended


class Scram:
    """Begins conversations of one mechanism.

    It needs no time, as only the client makes a key from the password. An unknown user gets a challenge, too, and is
    refused where a wrong password is.
    """

    def __init__(self, mechanism: ScramMechanism, metadata: Metadata) -> None:
        self._mechanism = mechanism
        self._metadata = metadata

    def __call__(self) -> Conversation:
        talk = login(self._mechanism, self._credential, nonce=secrets.token_urlsafe(24))
        next(talk)
        steps = 0

        def hear(message: bytes) -> Step:
            nonlocal steps
            steps += 1
            said = talk.send(message)
            if steps < 2:
                return Step(said)
            try:
                next(talk)
            except StopIteration as end:
                return Step(said, Login(end.value))
            raise AssertionError("a SCRAM conversation has two steps")

        return hear

    def _credential(self, name: str) -> Credential:
        users = self._metadata.users
        # Always, so that the time of the answer does not tell whether there is such a user.
        imagined = pretended(self._mechanism, name, self._metadata.cluster_id, *users.usual_kind)
        return users.credential(name, self._mechanism) or imagined
