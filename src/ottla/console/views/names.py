r"""Names in addresses: every name is exactly one segment of a path, whatever is in it.

Kafka allows any text as the name of a group: ``a/delete``, ``..``, ``50% off?``, and nothing at all. Percent-encoding
is not enough for these. Servers and proxies decode ``%2F`` before they split a path, some proxies refuse it, and
browsers treat ``%2E%2E`` like ``..``. So what could be taken for something else is written as a tilde with the code of
the character. Ordinary names stay as they are.

>>> segment("billing"), segment("a/delete"), segment(".."), segment("50% off?"), segment("~"), segment("")
('billing', 'a~2Fdelete', '~2E~2E', '50~25%20off~3F', '~7E', '~')
>>> name_of("a~2Fdelete"), name_of("~2E~2E"), name_of("~")
('a/delete', '..', '')
"""

from __future__ import annotations

import re
from urllib.parse import quote

_ODD = re.compile("[~/\\\\;%?#\x00-\x1f\x7f]|[\ud800-\udfff]")
_ESCAPE = re.compile(r"~(?:u([0-9A-Fa-f]{4})|([0-9A-Fa-f]{2}))")
EMPTY = "~"


def segment(name: str) -> str:
    """A name as one segment of a path."""
    if name in (".", ".."):
        return "~2E" * len(name)
    return quote(_ODD.sub(_escaped, name), safe="~") or EMPTY


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"~{code:02X}" if code < 256 else f"~u{code:04X}"


def name_of(text: str) -> str:
    """The name of a segment that the server has percent-decoded. A tilde that is no escape stands for itself."""
    return "" if text == EMPTY else _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), text)


def with_whole_names(raw_path: bytes) -> str | None:
    """The address to use instead if somebody wrote the slash of a name as ``%2F``; None if nobody did.

    >>> with_whole_names(b"/groups/a%2fdelete"), with_whole_names(b"/groups/a")
    ('/groups/a~2Fdelete', None)
    """
    # An address that begins with two slashes would lead to another host.
    if b"%2f" not in raw_path.lower() or raw_path.startswith((b"//", b"/\\")):
        return None
    return re.sub("%2f", "~2F", raw_path.decode("latin-1"), flags=re.IGNORECASE)
