"""Pages of long lists."""

from __future__ import annotations

from collections.abc import Sequence


def whole(text: str) -> int | None:
    """A whole number that fits into 64 bits, or None.

    >>> whole("17"), whole("-1"), whole("9" * 5000)
    (17, None, None)
    """
    digits = text.strip()
    return int(digits) if digits.isdecimal() and len(digits) <= 18 else None


def page_of(items: Sequence[object], page: str, size: int) -> tuple[int, int]:
    """The number of a page that exists, from 1 on, and the number of pages.

    >>> page_of(range(120), "2", 50), page_of(range(120), "9", 50), page_of([], "x", 50)
    ((2, 3), (3, 3), (1, 1))
    """
    pages = max(-(-len(items) // size), 1)
    return min(max(whole(page) or 1, 1), pages), pages
