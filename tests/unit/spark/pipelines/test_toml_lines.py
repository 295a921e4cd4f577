"""The locator finds the same keys as tomllib, each with its line."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.pipelines.toml.lines import Path, locate


def paths(value: Any, path: Path = ()) -> set[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {path} if path else set()
    for key, one in items:
        found |= paths(one, (*path, key))
    return found


def check(text: str) -> dict[Path, int]:
    lines = locate(text)
    assert set(lines) == paths(tomllib.loads(text))
    return lines


def test_tables_keys_and_arrays_of_tables() -> None:
    lines = check(
        """\
# a comment = with [brackets]
name = "x"   # and another
spark.sql.shuffle = 2
[kafka]
"security.protocol" = "SSL"
[[source]]
name = "a"
assign = {orders = [0, 1], "odd = [" = []}

[[source]]
name = 'b'
[source.options]
sep = ";"
[[source.part]]
x = 1
[[source.part]]
x.y = 2
"""
    )
    assert lines[("spark", "sql", "shuffle")] == 3
    assert lines[("kafka", "security.protocol")] == 5
    assert lines[("source",)] == lines[("source", 0)] == 6
    assert lines[("source", 0, "assign", "odd = [")] == 8
    assert lines[("source", 1, "name")] == 11
    assert lines[("source", 1, "options", "sep")] == 13
    assert lines[("source", 1, "part", 1, "x", "y")] == 17


def test_strings_over_several_lines_hide_what_they_hold() -> None:
    lines = check(
        '''\
sql = """
SELECT * -- [[sink]]
name = "x" \\""" still inside
"""
raw = \'\'\'
[table]
''x = 1'' \'\'\'
topics = [
  "a",  # ]
  "b]",
]
last = """a""""
end = 1
'''
    )
    assert lines == {
        ("sql",): 1,
        ("raw",): 5,
        ("topics",): 8,
        ("topics", 0): 9,
        ("topics", 1): 10,
        ("last",): 12,
        ("end",): 13,
    }


def test_windows_line_ends() -> None:
    assert check('a = 1\r\n[b]\r\nc = """x\r\ny"""\r\nd = 2\r\n')[("b", "d")] == 5


TEXTS = st.text(st.sampled_from("ab[]{}=#,.\"'\\\n x"), max_size=8)
BARE = st.text(st.sampled_from("abc_-1"), min_size=1, max_size=3)


def basic(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def multi(text: str) -> str:
    return '"""\n' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'


def literal(text: str) -> str:
    return f"'{text}'" if "'" not in text and "\n" not in text else basic(text)


STRINGS = st.tuples(st.sampled_from([basic, multi, literal]), TEXTS).map(lambda pair: pair[0](pair[1]))
SCALARS = STRINGS | st.sampled_from(["1", "-1.5", "true", "1979-05-27 07:32:00", "0x1F"])
KEYS = st.tuples(BARE | TEXTS.map(basic), st.sampled_from(["", "  # [x]", " "])).map(lambda pair: pair[0])


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(st.integers(0, 3)) if depth else 0
    if kind == 1:
        inner = draw(st.lists(values(depth - 1), max_size=3))
        joint = draw(st.sampled_from([", ", ",\n  ", " , # ]\n"]))
        return f"[{draw(st.sampled_from(['', ' # [', chr(10)])) and chr(10)}{joint.join(inner)}\n]"
    if kind == 2:
        keys = draw(st.lists(KEYS, max_size=3, unique=True))
        return "{" + ", ".join(f"{key} = {draw(values(depth - 1))}" for key in keys) + "}"
    return draw(SCALARS)


@st.composite
def documents(draw: st.DrawFn) -> str:
    out = []
    for _ in range(draw(st.integers(0, 4))):
        head = ".".join(draw(st.lists(KEYS, min_size=1, max_size=2)))
        out.append(draw(st.sampled_from(["", f"[{head}]", f"[[{head}]]", f"[[ {head} ]] # x", "# [c]"])))
        for _ in range(draw(st.integers(0, 3))):
            key = draw(st.sampled_from([".", " . "])).join(draw(st.lists(KEYS, min_size=1, max_size=2)))
            out.append(f"{draw(st.sampled_from(['', '  ']))}{key}={draw(values())}")
    return "\n".join(out) + "\n"


@settings(max_examples=150, deadline=None)
@given(documents())
def test_finds_what_tomllib_finds(text: str) -> None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # the same key twice, or a table and a value of one name
    check(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(BARE, values()), max_size=6, unique_by=lambda pair: pair[0]))
def test_keys_are_in_their_lines(pairs: list[tuple[str, str]]) -> None:
    text, expected, line = "", {}, 1
    for key, value in pairs:
        expected[(key,)] = line
        text += f"{key} = {value}\n"
        line = text.count("\n") + 1
    found = locate(text)
    assert {path: found[path] for path in expected} == expected


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment"])
def test_nothing(text: str) -> None:
    assert locate(text) == {}
