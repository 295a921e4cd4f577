"""SCRAM (RFC 5802): the keys that stand for a password, and the broker's side of a login.

The broker stores a salt and two keys of each user, never the password. Neither key is enough to log in. A conversation
is a generator, as on the client's side: it yields the bytes to send and receives the client's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import IntEnum

from ottla.errors import SaslAuthenticationFailed

#: Fewer make the password easy to guess for who sees the network traffic or the stored keys. As in Kafka.
MIN_ITERATIONS = 4096
#: More would make logins slow. As in Kafka.
MAX_ITERATIONS = 16384
#: Longer messages of a client are refused: reading them would keep others waiting.
LONGEST_MESSAGE = 1 << 13


class ScramMechanism(IntEnum):
    """Kafka's numbers of the mechanisms.

    >>> ScramMechanism.named("SCRAM-SHA-512").hash_name
    'sha512'
    """

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def named(cls, mechanism: str) -> ScramMechanism:
        return cls[mechanism.upper().replace("-", "_")]

    @property
    def mechanism(self) -> str:
        """The name of the mechanism in SASL."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return f"sha{self.name[-3:]}"


_KEY_SIZES = {ScramMechanism.SCRAM_SHA_256: 32, ScramMechanism.SCRAM_SHA_512: 64}


@dataclass(frozen=True, slots=True)
class Credential:
    """What the broker knows of a password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the key of a password. It takes milliseconds on purpose."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode("utf-8", "surrogatepass"), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Return what to store of a salted password."""
    name = mechanism.hash_name
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return Credential(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)


def is_password(mechanism: ScramMechanism, credential: Credential, password: str) -> bool:
    """Whether this is the password of a credential. It takes milliseconds.

    >>> sha256 = ScramMechanism.SCRAM_SHA_256
    >>> credential = credential_of(sha256, salted_password(sha256, "secret", b"salt", 4096), b"salt", 4096)
    >>> is_password(sha256, credential, "secret"), is_password(sha256, credential, "guess")
    (True, False)
    """
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    given = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(given.stored_key, credential.stored_key)


def pretended(mechanism: ScramMechanism, username: str, secret: str, iterations: int, salt_size: int) -> Credential:
    """Return a credential for a user that does not exist. No password fits, and its salt is always the same.

    ``secret`` keeps others from computing the salt, which would show that it is not a real one. It is the id of the
    cluster: all brokers know it, also after a restart, and a client learns it only once it has logged in.
    """
    salt_size, size = max(salt_size, 1), _KEY_SIZES[mechanism]
    # With the mechanism, because a user that exists has another salt for each.
    source = f"{secret} {mechanism.mechanism} {username}".encode("utf-8", "surrogatepass")
    made_up = hashlib.shake_256(source).digest(salt_size + size)
    return Credential(made_up[:salt_size], made_up[salt_size:], bytes(size), iterations)


# ── a login ───────────────────────────────────────────────────────────────────────────────────────────────────────

Login = Generator[bytes, bytes, str]
"""A conversation that returns the name of the user."""

_NAME = r"(?:[^=,]|=2C|=3D)"
_NONCE = r"r=([\x21-\x2b\x2d-\x7e]+)"
_MORE = r"((?:,[a-zA-Z]+=[^,]*)*)"
_FIRST = re.compile(rf"n,(?:a=({_NAME}*))?,(n=({_NAME}+),{_NONCE}{_MORE})")
_FINAL = re.compile(rf"(c=([A-Za-z0-9+/=]+),{_NONCE}{_MORE}),p=([A-Za-z0-9+/=]+)")


def login(mechanism: ScramMechanism, credential: Callable[[str], Credential], *, nonce: str) -> Login:
    """Let a client prove that it knows the password of a user.

    ``credential`` returns what is stored of a user; for an unknown user a `pretended` one, so that the client sees no
    difference.
    """
    first = _match(_FIRST, (yield b""))
    authorization, bare, name, client_nonce, extensions = first.groups()
    if ",tokenauth=true" in extensions:
        raise SaslAuthenticationFailed("delegation tokens are not supported")
    username = _unescaped(name)
    stored = credential(username)
    challenge = f"r={client_nonce}{nonce},s={base64.b64encode(stored.salt).decode()},i={stored.iterations}"
    final = _match(_FINAL, (yield challenge.encode()))
    without_proof, binding, final_nonce, _, proof = final.groups()
    message = ",".join((bare, challenge, without_proof)).encode()
    is_proven = _is_proof(mechanism, stored, message, _decoded(proof))
    # The header of the first message comes back with the proof, so that nobody can have changed it on the way.
    header = f"n,{'' if authorization is None else f'a={authorization}'},"
    if not (is_proven and final_nonce == client_nonce + nonce and _decoded(binding) == header.encode()):
        raise SaslAuthenticationFailed("invalid user or password")
    if authorization and _unescaped(authorization) != username:
        raise SaslAuthenticationFailed("the client requested an authorization id that is different from its user name")
    signature = hmac.digest(stored.server_key, message, mechanism.hash_name)
    yield b"v=" + base64.b64encode(signature)
    return username


def _is_proof(mechanism: ScramMechanism, stored: Credential, message: bytes, proof: bytes) -> bool:
    name = mechanism.hash_name
    signature = hmac.digest(stored.stored_key, message, name)
    if len(proof) != len(signature):
        return False
    client_key = (int.from_bytes(signature) ^ int.from_bytes(proof)).to_bytes(len(proof))
    return hmac.compare_digest(hashlib.new(name, client_key).digest(), stored.stored_key)


def _match(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    try:
        found = pattern.fullmatch(message.decode()) if len(message) <= LONGEST_MESSAGE else None
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise SaslAuthenticationFailed("invalid SCRAM message")
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslAuthenticationFailed("invalid SCRAM message") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
