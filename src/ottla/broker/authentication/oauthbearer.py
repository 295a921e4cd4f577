"""OAUTHBEARER (RFC 7628): a signed token of an identity provider, checked with the provider's public keys."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.broker.authentication.conversations import Conversation, Login, Step
from ottla.errors import SaslAuthenticationFailed

_FIRST = re.compile(
    r"n,(?:a=((?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*)\x01"
)
_BEARER = re.compile(r"bearer +([-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)
#: The seconds of a time that is certainly too late.
LATEST = 1 << 40
#: A token may be long. What stands beside it may not: reading that would keep others waiting.
MOST_PAIRS = 50
LONGEST_START = 1 << 12


class InvalidToken(Exception):
    """The token is not accepted. The text names the reason and contains nothing of the token."""


class OAuthBearer:
    """Begins conversations. ``validate`` returns whom a token is for, or raises InvalidToken."""

    def __init__(self, validate: Callable[[str], Awaitable[Login]]) -> None:
        self._validate = validate

    def __call__(self) -> Conversation:
        refusal: list[str] = []

        async def hear(message: bytes) -> Step:
            if refusal:
                raise SaslAuthenticationFailed(refusal[0])
            authorization, token = _read(message)
            try:
                login = await self._validate(token)
            except InvalidToken as problem:
                refusal.append(json.dumps({"status": "invalid_token", "error_description": str(problem)}))
                return Step(refusal[0].encode(), problem=str(problem))
            if authorization not in ("", login.name):
                raise SaslAuthenticationFailed(
                    "Authentication failed: Client requested an authorization id that is different from the token's "
                    "principal name"
                )
            return Step(b"", login)

        return hear


def _read(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token."""
    is_usual = message.count(b"\x01") <= MOST_PAIRS + 2 and message.find(b"\x01") <= LONGEST_START
    try:
        found = _FIRST.fullmatch(message.decode("ascii")) if is_usual else None
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise SaslAuthenticationFailed("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in found[2].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise SaslAuthenticationFailed("Invalid OAUTHBEARER client first message: there is no bearer token in it")
    return (found[1] or "").replace("=2C", ",").replace("=3D", "="), bearer[1]


def login_of(claims: dict[str, Any], name_claim: str) -> Login:
    """Return whom the claims of a valid token are about."""
    name, expires = claims.get(name_claim), claims.get("exp")
    if not isinstance(name, str) or not name.strip():
        raise InvalidToken(f"the token has no claim {name_claim} with the name of the user")
    if isinstance(expires, bool) or not isinstance(expires, int | float) or not 0 <= expires < LATEST:
        raise InvalidToken("the token has no expiry time")
    return Login(name, int(expires * 1000))
