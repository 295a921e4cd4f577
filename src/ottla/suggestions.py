"""Suggest the name that was probably meant, for errors about an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar name, ignoring case; None if nothing is similar.

    >>> nearest("Ordres", ["orders", "users"])
    'orders'
    """
    spelled = {one.lower(): one for one in names}
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return spelled[near[0]] if near else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a sentence for the end of an error message, empty if nothing is similar.

    >>> did_you_mean("ordres", ["orders", "users"])
    ' Did you mean orders?'
    """
    near = nearest(name, names)
    return "" if near is None else f" Did you mean {near}?"


def hint(name: str, names: Iterable[str]) -> str:
    """A hint for the error about an unknown name; empty if no known name is similar.

    >>> hint("ordres", ["orders", "users"])
    "; did you mean 'orders'?"
    """
    near = nearest(name, names)
    return f"; did you mean {near!r}?" if near else ""
