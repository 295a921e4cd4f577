"""The channel of a TLS listener.

OpenSSL works on memory here, not on the socket: one call receives as much as the client has sent, and what the socket
does not accept stays in the channel. So a read never waits for a write, and large responses take few system calls. It
is as fast as OpenSSL on the socket. Kernel TLS would need the socket, so it is not used.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Sequence
from typing import Protocol

from ottla.protocol.codec import Buffer
from ottla.security.principals import ANONYMOUS, Principal

#: How many bytes are received, or encrypted and sent, with one call. OpenSSL keeps memory for that many on each
#: connection that has once moved as much; twice as many would save little processor time.
CHUNK = 1 << 17
#: A handshake with a long chain of certificates fits in. Nobody gets more memory before it is over.
MOST_OF_HANDSHAKE = 1 << 16
#: A client that sends more than this without any data in it, such as changes of keys, is disconnected. So is one that
#: does not read the answers to them. It is more than the longest record, of which a part may have arrived.
MOST_WITHOUT_DATA = 1 << 16
LONGEST_RECORD = 5 + (1 << 14) + 256
_HANDSHAKE_RECORD = 0x16


class TlsFailed(OSError):
    """The client does not speak TLS, or not so that both sides can agree. `strerror` names the cause."""

    def __init__(self, why: str, *, expected: bool = False) -> None:
        super().__init__(0, why)
        self.is_expected = expected
        """Whether it says nothing about the client's configuration: it has gone away."""


class Tls(Protocol):
    """What the channels of a listener share."""

    scratch: bytearray
    """Of the size CHUNK. Only for the time of a call."""

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""

    def principal_of(self, tls: ssl.SSLObject) -> Principal:
        """Return who the client is by its certificate. Raise TlsFailed if no rule says it."""

    def let_go(self, sock: socket.socket) -> None:
        """Close a socket a little later, so that the client can read why."""


class TlsChannel:
    """A socket with TLS. It costs no memory of OpenSSL before the client has sent the whole first record."""

    __slots__ = (
        "_encrypted", "_failed", "_handshake_bytes", "_hello", "_received", "_shared", "_socket", "_tls", "_unsent",
        "_without_data", "fd", "is_established", "is_plain", "principal",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, shared: Tls) -> None:
        self._socket = sock
        self._shared = shared
        self.fd = sock.fileno()
        self.is_plain = False
        self.is_established = False
        self.principal = ANONYMOUS
        self._received = ssl.MemoryBIO()
        self._encrypted = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._unsent = memoryview(b"")
        self._handshake_bytes = 0
        self._without_data = 0
        """How many bytes have arrived since the last ones with data for the connection."""
        self._hello = b""
        """The beginning of the first record."""
        self._failed = False

    @property
    def local_host(self) -> str:
        host: str = self._socket.getsockname()[0]
        return host

    @property
    def has_more(self) -> bool:
        """Whether there are received bytes that no event of the socket will tell of."""
        return self._tls is not None and (self._tls.pending() > 0 or self._received.pending > 0)

    # ── the handshake ─────────────────────────────────────────────────────────────────────────────────────────────

    def shake_hands(self) -> None:
        """Go on with the handshake. Raise BlockingIOError if the client must send more, TlsFailed if it cannot be."""
        while True:
            self._receive_handshake()
            if self._tls is None:
                continue
            try:
                self._tls.do_handshake()
                self.principal = self._shared.principal_of(self._tls)
            except ssl.SSLWantReadError:
                self._send_encrypted()
                continue
            except ssl.SSLError as error:
                raise self._failure(why_it_failed(error)) from None
            self.is_established = True
            self._send_encrypted()
            return

    def _receive_handshake(self) -> None:
        most = MOST_OF_HANDSHAKE - self._handshake_bytes
        if most <= 0:
            raise self._failure(f"TLS failed: a handshake of more than {MOST_OF_HANDSHAKE} bytes")
        data = self._socket.recv(min(most, 1 << 14))
        if not data and self._tls is None:
            raise TlsFailed("the client closed before the TLS handshake", expected=True)
        if not data:
            raise TlsFailed("TLS failed: the client closed, maybe because it does not trust this broker's certificate")
        if self._tls is None:
            self._hello += data
            if self._hello[0] != _HANDSHAKE_RECORD:
                # No TLS alert: such a client could not read it. Clients explain a closed connection best.
                raise TlsFailed(f"this listener requires TLS, but {_what_it_is(data)}: {_ADVICE}")
            if not _is_record(self._hello):
                return
            data, self._hello = self._hello, b""
            self._tls = self._shared.context().wrap_bio(self._received, self._encrypted, server_side=True)
        self._handshake_bytes += len(data)
        self._received.write(data)

    def _failure(self, why: str) -> TlsFailed:
        self._failed = True
        with contextlib.suppress(OSError):
            self._send_encrypted()  # The alert that tells the client.
        return TlsFailed(why)

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────

    def receive_into(self, view: memoryview) -> int:
        """Receive decrypted bytes. Raises BlockingIOError if there are none yet; 0 means that the client has closed.

        It takes bytes from the socket once: others wait while the client sends records without data.
        """
        assert self._tls is not None
        read, filled, size, has_received = self._tls.read, 0, len(view), False
        while True:
            try:
                while filled < size:
                    count: int = read(size - filled, view[filled:])  # type: ignore[assignment]
                    if not count:
                        return filled
                    filled += count
                self._without_data = 0
                return filled
            except ssl.SSLWantReadError:
                if self._encrypted.pending:
                    self._send_encrypted()  # The answer to a change of keys.
                if filled:
                    self._without_data = 0
                    return filled
                if self._without_data > MOST_WITHOUT_DATA or len(self._unsent) > MOST_WITHOUT_DATA:
                    raise self._failure("TLS failed: the client sends records without data") from None
            except ssl.SSLZeroReturnError:
                return filled
            except ssl.SSLError as error:
                raise self._failure(why_it_failed(error)) from None
            if has_received:
                raise BlockingIOError
            # A client that may only send short requests gets little memory of OpenSSL, too.
            scratch = memoryview(self._shared.scratch)[: max(size, LONGEST_RECORD)]
            count = self._socket.recv_into(scratch)
            if not count:
                return 0
            has_received = True
            self._without_data += count
            self._received.write(scratch[:count])

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, data: Buffer | memoryview) -> int:
        """Encrypt and send. What the socket does not accept counts as sent; `flush` sends it."""
        self.flush()
        return self._encrypt(memoryview(data)[:CHUNK])

    def send_parts(self, parts: Sequence[Buffer | memoryview], *, more: bool) -> int:
        """Encrypt several buffers together and send them."""
        self.flush()
        scratch, filled = memoryview(self._shared.scratch), 0
        for part in parts:
            count = min(len(part), CHUNK - filled)
            scratch[filled : filled + count] = memoryview(part)[:count]
            filled += count
        return self._encrypt(scratch[:filled])

    def send_file(self, fd: int, position: int, length: int) -> int:
        """Read a part of a file, encrypt and send it."""
        self.flush()
        view = memoryview(self._shared.scratch)[:length]
        count = os.preadv(fd, [view], position)
        return self._encrypt(view[:count])

    def _encrypt(self, data: memoryview) -> int:
        assert self._tls is not None
        count = self._tls.write(data) if data else 0
        self._send_encrypted()
        return count

    def flush(self) -> None:
        """Send what is encrypted. Raises BlockingIOError if the socket does not accept all of it."""
        if self._unsent:
            self._send_encrypted()
            if self._unsent:
                raise BlockingIOError

    def _send_encrypted(self) -> None:
        if self._encrypted.pending:
            new = self._encrypted.read()
            self._unsent = memoryview(bytes(self._unsent) + new if self._unsent else new)
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def close(self) -> None:
        if self._failed:
            self._shared.let_go(self._socket)
            return
        if self.is_established and self._tls is not None:
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
            with contextlib.suppress(OSError):
                self._send_encrypted()
        self._socket.close()


def _is_record(start: bytes) -> bool:
    """Whether the first record is complete, or longer than OpenSSL accepts."""
    size = 5 + int.from_bytes(start[3:5], "big")
    return len(start) >= 5 and (len(start) >= size or size > LONGEST_RECORD)


_ADVICE = "set security.protocol of the client to SSL or SASL_SSL, or use another port"
_REASONS = {
    "UNSUPPORTED_PROTOCOL": "the client has no TLS version of ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the client has no cipher suite that this broker accepts (ssl.cipher.suites)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, but ssl.client.auth=required",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority that signed this broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client rejects this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client rejects this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client rejects this broker's certificate because it has expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client has no TLS version of ssl.enabled.protocols",
}


def why_it_failed(error: ssl.SSLError) -> str:
    """Return a sentence for the log, without secrets."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS failed: the client's certificate is not accepted: {error.verify_message}"
    reason = (error.reason or "").upper().replace(" ", "_")
    return f"TLS failed: {_REASONS.get(reason) or reason.lower().replace('_', ' ') or 'the client sent nonsense'}"


def _what_it_is(data: bytes) -> str:
    if data[:4] in (b"GET ", b"POST", b"HEAD", b"PUT "):
        return "the client speaks HTTP"
    return "the client sends plain text"
