"""What a SASL mechanism is to the authenticator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from ottla.types import Millis


class Login(NamedTuple):
    """The end of a conversation: who the client is."""

    name: str
    expires_at: Millis | None = None
    """When the client's proof ends. Only tokens have such a time."""


class Step(NamedTuple):
    """What the broker says, and who the client is if it has proven that."""

    say: bytes
    login: Login | None = None
    problem: str = ""
    """Why the client will be refused, if the mechanism tells it so before the end."""


Conversation: TypeAlias = Callable[[bytes], Step | Awaitable[Step]]
"""Hears the next message of the client. Raises SaslAuthenticationFailed with the text for the client and the log."""
Mechanism: TypeAlias = Callable[[], Conversation]
"""Begins a conversation."""
