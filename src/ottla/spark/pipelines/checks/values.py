"""Check the values of a declaration against the types and metadata of the fields."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union

from ottla.spark.pipelines.declaration import Declared, Pipeline, Problem
from ottla.spark.pipelines.times import interval
from ottla.suggestions import did_you_mean


def value_problems(part: Declared, pipeline: Pipeline) -> list[Problem]:
    """Values that are missing, of a wrong type, out of range, not a duration, or not a file."""
    hints = typing.get_type_hints(type(part))
    return [
        part.where.problem(message, str(one.metadata.get("key", one.name)))
        for one in fields(part)
        if one.init
        for message in _messages(one, hints[one.name], getattr(part, one.name), part, pipeline)
    ]


def _messages(one: Field[Any], hint: Any, value: Any, part: Declared, pipeline: Pipeline) -> Iterator[str]:
    key = one.metadata.get("key", one.name) if part.where.keys else one.name
    if value is None and NoneType not in typing.get_args(hint):
        example = one.metadata.get("example")
        yield f"{key} is missing{f', such as {key} = {example}' if example else f'. {plain(one)}'}"
    elif not _fits(value, hint):
        yield f"{key} must be {described(hint)}, not {_shown(value)}.{_near(value, hint)}".removesuffix(".")
    elif value is not None:
        yield from _more(one, key, value, part, pipeline)


def _more(one: Field[Any], key: str, value: Any, part: Declared, pipeline: Pipeline) -> Iterator[str]:
    if value == "" or (isinstance(value, Sequence) and not isinstance(value, str) and "" in value):
        yield f"{key} is empty"
    elif "least" in one.metadata and value < one.metadata["least"]:
        yield f"{key} must be at least {one.metadata['least']}, not {value}"
    elif one.metadata.get("time"):
        try:
            interval(value)
        except ValueError as error:
            yield f"{key} {error}"
    elif one.metadata.get("file") and not Path(pipeline.path(value)).is_file():
        yield f"{key}: file {pipeline.path(value)} not found"


def plain(one: Field[Any]) -> str:
    return str(one.metadata["doc"])


def _fits(value: Any, hint: Any) -> bool:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if origin is Literal:
        return value in inside
    if hint == Mapping[str, str]:  # settings: numbers and booleans are allowed, too
        return isinstance(value, Mapping) and all(
            isinstance(key, str) and isinstance(one, str | int | float) for key, one in value.items()
        )
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(key, inside[0]) and _fits(one, inside[1]) for key, one in value.items()
        )
    if origin is not None and issubclass(origin, Sequence):
        return isinstance(value, list | tuple) and all(_fits(one, inside[0]) for one in value)
    if hint in (None, NoneType):
        return value is None
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))


def described(hint: Any) -> str:
    """A type in words, for messages and the reference."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(described(one) for one in inside if one is not NoneType)
    if origin is Literal:
        return f"one of {', '.join(map(str, inside))}"
    if hint == Mapping[str, str]:
        return "a table of settings"
    if origin is not None and issubclass(origin, Mapping):
        return "a table"
    if origin is not None and issubclass(origin, Sequence):
        return f"a list of {_PLURAL.get(inside[0], getattr(inside[0], '__name__', 'them'))}"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


_WORDS = {str: "a string", int: "a whole number", bool: "true or false", float: "a number", Any: "anything"}
_PLURAL = {str: "strings", int: "whole numbers"}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _near(value: Any, hint: Any) -> str:
    choices = [
        str(choice)
        for one in (hint, *typing.get_args(hint))
        if typing.get_origin(one) is Literal
        for choice in typing.get_args(one)
    ]
    if choices and isinstance(value, str):
        return did_you_mean(value, choices)
    if isinstance(value, str) and Sequence[str] in (hint, *typing.get_args(hint)):
        return f' Write ["{value}"].'
    return ""
