"""User names from the certificates of clients: ssl.principal.mapping.rules, in Kafka's syntax."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

Subject = Sequence[Sequence[tuple[str, str]]]
"""The subject of a certificate as Python's ssl module returns it."""

_SEPARATORS = re.compile(r"[\s,]*")
_RULE = re.compile(r"(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL)
_REFERENCE = re.compile(r"\\(.)|\$([0-9]+)|\$\{(\w+)\}", re.DOTALL)
#: Java writes (?<name>…), Python (?P<name>…).
_NAMED_GROUP = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z])")
# RFC 2253 has short names for these. Java writes others as their number and their bytes.
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_IA5, _PRINTABLE, _UTF8 = 0x16, 0x13, 0x0C
_NUMBERED = {
    "dnQualifier": ("2.5.4.46", _PRINTABLE),
    "emailAddress": ("1.2.840.113549.1.9.1", _IA5),
    "generationQualifier": ("2.5.4.44", _UTF8),
    "givenName": ("2.5.4.42", _UTF8),
    "initials": ("2.5.4.43", _UTF8),
    "name": ("2.5.4.41", _UTF8),
    "pseudonym": ("2.5.4.65", _UTF8),
    "serialNumber": ("2.5.4.5", _PRINTABLE),
    "surname": ("2.5.4.4", _UTF8),
    "title": ("2.5.4.12", _UTF8),
}


class Rule(NamedTuple):
    """Makes a name from a distinguished name that its pattern matches."""

    pattern: re.Pattern[str] | None
    """None for DEFAULT: the distinguished name is the name."""
    replacement: str = ""
    case: str = ""

    def name_of(self, distinguished_name: str) -> str | None:
        if self.pattern is None:
            return distinguished_name
        if self.pattern.fullmatch(distinguished_name) is None:
            return None
        found = self.pattern.sub(self._replaced, distinguished_name)
        return {"L": found.lower(), "U": found.upper()}.get(self.case, found)

    def _replaced(self, match: re.Match[str]) -> str:
        def value(reference: re.Match[str]) -> str:
            escaped, number, name = reference.groups()
            if escaped is not None:
                return str(escaped)
            return _group(match, number) if number is not None else match[name] or ""

        return _REFERENCE.sub(value, self.replacement)


def _group(match: re.Match[str], digits: str) -> str:
    """Return the group of as many digits as there are groups, and the other digits; without a group they are text."""
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= match.re.groups:
            return (match[int(digits[:end])] or "") + digits[end:]
    return f"${digits}"


class PrincipalRules(NamedTuple):
    """The rules of a listener. The first one that matches makes the name.

    >>> PrincipalRules.parse("RULE:^CN=(.*?),OU=.*$/$1/L,DEFAULT").name_of("CN=Alice,OU=ETL,O=ottla")
    'alice'
    """

    rules: tuple[Rule, ...]

    @classmethod
    def parse(cls, text: str) -> PrincipalRules:
        """Raise ValueError with the reason if the text has no valid rules."""
        rules, rest = [], _SEPARATORS.sub("", text, 1)
        while rest:
            match = _RULE.match(rest)
            if match is None:
                raise ValueError(f"{rest!r} does not start with DEFAULT or RULE:pattern/replacement/")
            rules.append(_rule(match))
            rest = _SEPARATORS.sub("", rest[match.end() :], 1)
        if not rules:
            raise ValueError("there is no rule")
        return cls(tuple(rules))

    def name_of(self, distinguished_name: str) -> str | None:
        """Return the name of a user, or None if no rule matches."""
        names = (rule.name_of(distinguished_name) for rule in self.rules)
        return next((name for name in names if name is not None), None)


def _rule(match: re.Match[str]) -> Rule:
    default, pattern, replacement, case = match.groups()
    if default:
        return Rule(None)
    try:
        compiled = re.compile(_NAMED_GROUP.sub("(?P<", pattern))
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    for reference in _REFERENCE.finditer(replacement):
        if reference[3] is not None and reference[3] not in compiled.groupindex:
            raise ValueError(f"{pattern!r} has no group named {reference[3]}")
    return Rule(compiled, replacement, case)


def distinguished_name(subject: Subject) -> str:
    """Return the subject of a certificate as Java does (RFC 2253): the last part first.

    >>> distinguished_name(((("countryName", "FR"),), (("commonName", "etl, nightly"),)))
    'CN=etl\\\\, nightly,C=FR'
    """
    return ",".join("+".join(_attribute(*each) for each in part) for part in reversed(subject))


def _attribute(name: str, value: str) -> str:
    if name in _SHORT:
        return f"{_SHORT[name]}={_escaped(value)}"
    if name not in _NUMBERED:
        return f"{name}={_escaped(value)}"
    number, kind = _NUMBERED[name]
    data = value.encode()
    return f"{number}=#{bytes([kind, *_length(len(data))]).hex()}{data.hex()}"


def _length(size: int) -> bytes:
    """Return a length as DER has it: from 128 on, the number of its bytes comes first."""
    digits = size.to_bytes(max(1, (size.bit_length() + 7) // 8), "big")
    return digits if size < 128 else bytes([0x80 | len(digits)]) + digits


def _escaped(value: str) -> str:
    text = re.sub(r'([,=+<>#;"\\])', r"\\\1", value)
    text = re.sub(r"^ ", r"\\ ", text)
    return re.sub(r"(?<!\\) $", r"\\ ", text)
