"""An identity provider for tests: it signs tokens and publishes its keys."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

#: Some tokens are made when tests are collected, and used at the end of a run.
HOUR = 3600


class Issuer:
    """Signs tokens with a key of an elliptic curve."""

    def __init__(self, key_id: str = "one") -> None:
        self.key_id = key_id
        self._key = ec.generate_private_key(ec.SECP256R1())

    @property
    def public_key(self) -> dict[str, Any]:
        found = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        return {**found, "kid": self.key_id, "use": "sig"}

    def publish(self, path: Path, *others: Issuer) -> str:
        """Write the key set; return its URL."""
        path.write_text(json.dumps({"keys": [self.public_key, *(each.public_key for each in others)]}))
        return f"file://{path}"

    def token(self, name: str | None = "alice", *, seconds: float = HOUR, **claims: Any) -> str:
        now = time.time()
        own = {"iat": int(now) - 1, "exp": now + seconds, **({} if name is None else {"sub": name}), **claims}
        own = {claim: value for claim, value in own.items() if value is not None}
        return jwt.encode(own, self._key, algorithm="ES256", headers={"kid": self.key_id})


def unsigned(name: str = "alice", *, seconds: float = HOUR) -> str:
    """A token without a signature."""
    now = time.time()
    return jwt.encode({"sub": name, "iat": int(now), "exp": now + seconds}, None, algorithm="none")
