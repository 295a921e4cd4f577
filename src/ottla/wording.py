"""Words for people: numbers with nouns."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "partition"), plural(1200, "record")
    ('1 partition', '1,200 records')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
