"""Checks tokens (JWT): signature, times, audience, issuer. PyJWT does the cryptography.

Only signatures with a private key are accepted. A key that both sides know would have to be in the key set, which is
public, and a token without a signature is no proof of anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ottla.broker.authentication.conversations import Login
from ottla.broker.authentication.jwks import KeySet
from ottla.broker.authentication.oauthbearer import InvalidToken, login_of
from ottla.broker.authentication.workers import Workers
from ottla.config.security import ListenerSecurity
from ottla.errors import ConfigError

#: The part of a token that is read before its signature is checked. Others wait meanwhile.
LONGEST_HEADER = 1 << 14
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: What hostile tokens may cause beside PyJWT's own errors: deep nesting, numbers without end, other types.
_BROKEN = (ValueError, TypeError, OverflowError, RecursionError)


def jwt_library() -> Any:
    """Return PyJWT. Raise ConfigError if it is not installed."""
    try:
        import jwt
    except ModuleNotFoundError:
        raise ConfigError("OAUTHBEARER needs PyJWT. Install it: pip install 'ottla[security]'.") from None
    return jwt


class SignedTokens:
    """Checks tokens with the keys of their issuer."""

    def __init__(self, security: ListenerSecurity, keys: KeySet, workers: Workers) -> None:
        self._keys = keys
        self._workers = workers
        self._jwt = jwt_library()
        self._name_claim = security.sasl_oauthbearer_sub_claim_name
        audience = security.sasl_oauthbearer_expected_audience
        self._rules: dict[str, Any] = {
            "algorithms": list(ALGORITHMS),
            "audience": list(audience) if audience else None,
            "issuer": security.sasl_oauthbearer_expected_issuer,
            "leeway": security.sasl_oauthbearer_clock_skew_seconds,
            "options": {"require": ["exp", "iat"], "verify_aud": bool(audience), "verify_sub": False},
        }

    async def __call__(self, token: str) -> Login:
        if not 0 < token.find(".") <= LONGEST_HEADER:
            raise InvalidToken("it is not a JSON web token")
        header = _parsed(self._jwt.get_unverified_header, token)
        key_id, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in ALGORITHMS:
            raise InvalidToken(f"its signature algorithm is not one of {', '.join(ALGORITHMS)}")
        keys = await self._keys.find(key_id)
        if not keys:
            raise InvalidToken("it is signed with a key that is not in the key set of the issuer")
        return await self._workers.run(self._check, token, algorithm, keys)

    def _check(self, token: str, algorithm: str, keys: list[dict[str, Any]]) -> Login:
        jwt = self._jwt
        problem = "its signature is not valid"
        for each in keys:
            try:
                claims = jwt.decode(token, key=jwt.PyJWK(each, each.get("alg") or algorithm), **self._rules)
                return login_of(claims, self._name_claim)
            except jwt.InvalidSignatureError:
                continue
            except (jwt.PyJWTError, *_BROKEN) as error:
                problem = _reason(jwt, error)
        raise InvalidToken(problem)


def _parsed(function: Callable[..., dict[str, Any]], token: str, **options: Any) -> dict[str, Any]:
    """Return what a function of PyJWT finds in a token, whatever the token is."""
    try:
        return function(token, **options)
    except (jwt_library().PyJWTError, *_BROKEN):
        raise InvalidToken("it is not a JSON web token") from None


def _reason(jwt: Any, error: Exception) -> str:
    for kind, text in (
        (jwt.ExpiredSignatureError, "it has expired"),
        (jwt.ImmatureSignatureError, "it is not valid yet"),
        (jwt.InvalidAudienceError, "it is for another audience"),
        (jwt.InvalidIssuerError, "it is from another issuer"),
        (jwt.MissingRequiredClaimError, f"it has no claim {getattr(error, 'claim', '')}"),
    ):
        if isinstance(error, kind):
            return text
    return "it cannot be verified with the keys of the issuer"


class UnsecuredTokens:
    """Believes tokens without a signature, as Kafka does by default. For development only."""

    def __init__(self, security: ListenerSecurity) -> None:
        self._jwt = jwt_library()
        self._name_claim = security.sasl_oauthbearer_sub_claim_name
        self._skew = security.sasl_oauthbearer_clock_skew_seconds

    async def __call__(self, token: str) -> Login:
        decoded = _parsed(self._jwt.decode_complete, token, options={"verify_signature": False})
        if decoded["header"].get("alg") != "none":
            raise InvalidToken("it has a signature, which this listener cannot check")
        login = login_of(decoded["payload"], self._name_claim)
        assert login.expires_at is not None
        if login.expires_at + self._skew * 1000 <= time.time() * 1000:
            raise InvalidToken("it has expired")
        return login
