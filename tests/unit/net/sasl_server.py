"""The SASL part of a broker: it knows one user and records what it receives."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any

from tests.unit.net.test_client import Request, answer, api_versions, metadata, read_request

from ottla.protocol.apis import ApiKey

FAILED = 58
ITERATIONS = 4096
SALT = b"salt of the user"


@dataclass
class SaslServer:
    mechanisms: tuple[str, ...] = ("PLAIN",)
    username: str = "alice"
    password: str = "secret, with = and ü"
    token: str = "good.token"
    lifetimes_ms: list[int] = field(default_factory=list)
    """Of the sessions in turn. Later sessions do not expire."""
    broken_signature: bool = False
    diary: list[str] = field(default_factory=list)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mechanism, step, authenticated = "", 0, False
        state: dict[str, Any] = {}
        while True:
            request = await read_request(reader)
            self.diary.append(ApiKey(request.api_key).name.lower())
            if request.api_key == ApiKey.API_VERSIONS:
                writer.write(api_versions(request))
            elif request.api_key == ApiKey.SASL_HANDSHAKE:
                mechanism, step = request.body.mechanism, 0
                known = mechanism in self.mechanisms
                writer.write(answer(request, {"error_code": 0 if known else 33, "mechanisms": list(self.mechanisms)}))
            elif request.api_key == ApiKey.SASL_AUTHENTICATE:
                said, error = self._hear(mechanism, step, bytes(request.body.auth_bytes), state)
                step += 1
                writer.write(self._authenticated(request, said, error))
                authenticated = error is None
            elif authenticated:
                writer.write(metadata(request))
            else:
                return

    def _authenticated(self, request: Request, said: bytes, error: str | None) -> bytes:
        message = {
            "error_code": 0 if error is None else FAILED,
            "error_message": error,
            "auth_bytes": said,
            "session_lifetime": self.lifetimes_ms.pop(0) if self.lifetimes_ms and not said.startswith(b"r=") else 0,
        }
        return answer(request, message)

    def _hear(self, mechanism: str, step: int, heard: bytes, state: dict[str, Any]) -> tuple[bytes, str | None]:
        if mechanism == "PLAIN":
            right = heard == f"\0{self.username}\0{self.password}".encode()
            return b"", None if right else "Authentication failed: Invalid username or password"
        if mechanism == "OAUTHBEARER":
            return self._hear_token(step, heard)
        return self._hear_scram(mechanism, step, heard.decode(), state)

    def _hear_token(self, step: int, heard: bytes) -> tuple[bytes, str | None]:
        if step == 1:
            return b"", "Authentication failed"
        if heard == f"n,,\x01auth=Bearer {self.token}\x01\x01".encode():
            return b"", None
        return b'{"status":"invalid_token"}', None

    def _hear_scram(self, mechanism: str, step: int, heard: str, state: dict[str, Any]) -> tuple[bytes, str | None]:
        name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        if step == 0:
            state["bare"] = heard.removeprefix("n,,")
            user, nonce = state["bare"].split(",")
            if user != "n=" + self.username.replace("=", "=3D").replace(",", "=2C"):
                return b"", "Authentication failed during authentication due to invalid credentials"
            state["nonce"] = nonce.removeprefix("r=") + "server"
            state["first"] = f"r={state['nonce']},s={base64.b64encode(SALT).decode()},i={ITERATIONS}"
            return state["first"].encode(), None
        without, _, proof = heard.rpartition(",p=")
        salted = hashlib.pbkdf2_hmac(name, self.password.encode(), SALT, ITERATIONS)
        key = hmac.digest(salted, b"Client Key", name)
        message = ",".join((state["bare"], state["first"], without)).encode()
        signature = hmac.digest(hashlib.new(name, key).digest(), message, name)
        if base64.b64decode(proof) != bytes(a ^ b for a, b in zip(key, signature, strict=True)):
            return b"", "Authentication failed during authentication due to invalid credentials"
        server = hmac.digest(hmac.digest(salted, b"Server Key", name), message, name)
        shown = bytes(len(server)) if self.broken_signature else server
        return b"v=" + base64.b64encode(shown), None
