"""One turn of the event loop: requests that arrive together are written together and answered together."""

from __future__ import annotations

from collections.abc import Callable


class Turn:
    """What must be written before the responses of this turn are sent.

    A response may say that something is written that is only decided yet. Its owner registers the write with
    `before_send`; the server calls `write` before it sends anything.
    """

    __slots__ = ("before_send", "has_written", "unwritten")

    def __init__(self) -> None:
        self.unwritten: list[Callable[[], None]] = []
        self.before_send: Callable[[Callable[[], None]], object] = self.unwritten.append
        """Have a write called before the next response is sent."""
        self.has_written = False
        """Whether responses of this turn waited for a write that has been made."""

    def write(self) -> None:
        """Write everything that responses of this turn depend on."""
        self.has_written = True
        while self.unwritten:
            self.unwritten.pop()()
