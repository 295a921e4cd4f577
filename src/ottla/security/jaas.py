"""Parse ``sasl.jaas.config``: a login module, a flag and options, as Kafka's tools write them.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="…" user_alice="…";

The text has passwords in it, so errors do not repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s="';]+))""")
_FLAGS = ("required", "requisite", "sufficient", "optional")
#: The prefix of the options that name the users of PLAIN.
USER = "user_"


@dataclass(frozen=True, slots=True)
class Jaas:
    """A parsed JAAS entry.

    >>> Jaas.parse('x.PlainLoginModule required username="me" password="a b";').username
    'me'
    """

    module: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str) -> Jaas:
        """Raise ValueError with the reason, which does not contain the text."""
        tokens = list(_tokens(text))
        if len(tokens) < 3 or tokens[0][0] or tokens[1][1].lower() not in _FLAGS:
            raise ValueError("it must start with a login module and a flag such as `required`")
        if tokens[-1] != ("", ";") or ("", ";") in tokens[:-1]:
            raise ValueError("it must be one entry that ends with a semicolon")
        rest = tokens[2:-1]
        options: dict[str, str] = {}
        for position in range(0, len(rest), 3):
            triple = rest[position : position + 3]
            if len(triple) < 3 or triple[1] != ("", "=") or triple[0][1] in ("=", ";") or triple[2] == ("", "="):
                raise ValueError(f'option {position // 3 + 1} is not of the form name="value"')
            options[triple[0][1]] = triple[2][1]
        return cls(tokens[0][1], options)

    @property
    def username(self) -> str | None:
        """Who logs in with this entry."""
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        """The password of `username`."""
        return self.options.get("password")

    @property
    def users(self) -> dict[str, str]:
        """The passwords of the users that PLAIN accepts."""
        return {name.removeprefix(USER): value for name, value in self.options.items() if name.startswith(USER)}


def _tokens(text: str) -> list[tuple[str, str]]:
    """Return (quote, text) of each token."""
    found: list[tuple[str, str]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("a quotation mark is not closed")
        double, single, sign, word = match.groups()
        if double is not None or single is not None:
            quoted = double if double is not None else single
            found.append(('"', re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)))
        else:
            found.append(("", sign or word))
        position = match.end()
    return found
