"""What a client says about its connections: each problem in one line, and the last one for errors that come later."""

from __future__ import annotations

import logging

from ottla.config.client import Address
from ottla.errors import AuthenticationError
from ottla.net.client.errors import ClosedAtOnce, NoAnswer, NotKafka

log = logging.getLogger(__name__)
#: After so many failed attempts (about three seconds) a broker is away for longer than a restart takes.
_AWAY_FAILURES = 7
#: A restarting broker closes connections too. A client that has worked has wrong settings only if all of these fail.
_CLOSED_FOR_GOOD = 5


class Reports:
    """The log lines of one client; all its pools share it."""

    def __init__(self) -> None:
        self.reached: set[Address] = set()
        """The addresses that were connected since the last warning about them."""
        self.trouble: Exception | None = None
        """A rejection or a hint at wrong settings since the last response."""
        self._rejected_by: set[Address] = set()
        self._worked = False
        self._closed = 0
        self._hinted = False

    def connected(self, address: Address) -> None:
        self.reached.add(address)
        self._rejected_by.discard(address)

    def worked(self) -> None:
        """A request had a response, so the settings are right."""
        self._worked = True
        self._closed = 0
        self.trouble = None

    def failed(self, address: Address, error: Exception, failures: int) -> None:
        """An attempt to connect failed; so many have failed in a row."""
        if self.lost(address, error):
            return
        if address in self.reached and failures >= _AWAY_FAILURES:
            # A caller that waits for records gets no error. A broker that was never reached causes one.
            self.reached.discard(address)
            log.warning("%s; the client keeps trying", error)

    def lost(self, address: Address, error: Exception | None) -> bool:
        """A connection ended; whether its reason is a matter of this client's settings."""
        if isinstance(error, AuthenticationError):
            self.trouble = error
            if address not in self._rejected_by:
                self._rejected_by.add(address)
                log.error("%s", error)
            return True
        if not isinstance(error, ClosedAtOnce | NoAnswer | NotKafka):
            return False
        self.trouble = error
        self._closed += 1
        sure = not self._worked or self._closed >= _CLOSED_FOR_GOOD
        if sure and not self._hinted and not isinstance(error, NotKafka):
            self._hinted = True
            log.warning("%s; the client keeps trying", error)
            return True
        return False
