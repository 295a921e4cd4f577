"""A place in the words of a .proto text."""

from __future__ import annotations

from typing import NoReturn

from ottla.registry.errors import InvalidSchema
from ottla.registry.protobuf.tokens import Token, tokens, unquoted


class Cursor:
    """Takes the words of a text one after the other; what is not as expected raises with the line."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.index = 0

    @property
    def now(self) -> Token:
        return self.tokens[self.index]

    def ahead(self, far: int) -> Token:
        """The word that comes so many words later."""
        return self.tokens[min(self.index + far, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.now
        if token.kind != "end":
            self.index += 1
        return token

    def at(self, text: str) -> bool:
        return self.now.text == text and self.now.kind != "text"

    def take(self, text: str) -> bool:
        if self.at(text):
            self.index += 1
            return True
        return False

    def want(self, text: str) -> None:
        if not self.take(text):
            self.fail(f"expected {text!r}")

    def fail(self, what: str) -> NoReturn:
        found = self.now.text or "the end"
        raise InvalidSchema(f"line {self.now.line}: {what}, found {found!r}")

    def word(self) -> str:
        if self.now.kind != "word":
            self.fail("expected a name")
        return self.next().text

    def name(self) -> str:
        """A name with dots, which may begin with one."""
        name = "." if self.take(".") else ""
        name += self.word()
        while self.take("."):
            name += f".{self.word()}"
        return name

    def text(self) -> bytes:
        if self.now.kind != "text":
            self.fail("expected a quoted text")
        data = b""
        while self.now.kind == "text":
            data += unquoted(self.next().text)
        return data

    def string(self) -> str:
        return self.text().decode(errors="replace")

    def integer(self) -> int:
        sign = -1 if self.take("-") else 1
        try:
            if self.now.kind != "number":
                raise ValueError
            text = self.next().text
            is_octal = len(text) > 1 and text[0] == "0" and text.isdigit()
            value = sign * int(text, 8 if is_octal else 0)
        except ValueError:
            self.fail("expected a whole number")
        if not -(2**31) <= value < 2**31:
            self.fail(f"the number {value} is too large")
        return value
