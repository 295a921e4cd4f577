"""Suggest the name that was probably meant, for errors about an unknown name or method."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from inspect import getattr_static
from typing import Self, TypeVar

T = TypeVar("T")


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


class _Missing:
    """Takes the place of a method of another client: it does not exist, and the error says what to write."""

    def __init__(self, name: str, instead: str) -> None:
        self._name = name
        self._instead = instead

    def __get__(self, instance: object, kind: type) -> Self:
        if instance is None:  # Tools that look at all attributes of a class must not fail.
            return self
        raise AttributeError(f"{kind.__name__} has no method {self._name!r}: {self._instead}")


def missing_methods(instead: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """Decorate a class, so that a method of another client says what to write instead.

    A decorator, so that type checkers still find unknown names. Not `__getattr__`, because a class with it loses 10 %
    of its speed: Python then takes a slow way to every attribute.
    """

    def decorate(kind: type[T]) -> type[T]:
        def names(self: T) -> list[str]:
            return [name for name in object.__dir__(self) if not isinstance(getattr_static(self, name, None), _Missing)]

        for name, text in instead.items():
            if not hasattr(kind, name):
                setattr(kind, name, _Missing(name, text))
        kind.__dir__ = names  # type: ignore[assignment, method-assign]
        return kind

    return decorate
