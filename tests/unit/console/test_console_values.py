"""How the console shows bytes of strangers: nothing hides, nothing acts."""

from __future__ import annotations

import json

import pytest

from ottla.console.views.pieces import hex_dump, json_pieces, shortened, visible
from ottla.console.views.values import HEADER, Decoded, Lens, Room, Undecoded, shown

FRAMED = b"\0\0\0\0\x07\x0aalice"


def text(data: bytes | None, lens: Lens = Lens(), room: Room = Room()) -> str:  # noqa: B008
    return "".join(piece.text for piece in shown(data, lens, room).pieces)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (None, "null"),
        (b"", "empty"),
        (b"null", "text"),
        (b" ", "text"),
        (b'{"a": [1, 2]}', "JSON"),
        (b"[]", "JSON"),
        (b'{"a": ', "text"),
        (b"3", "text"),
        ("é".encode(), "text"),
        (b"\xff\xfe", "hex"),
        (b"\x01\x02\x03abc", "hex"),
    ],
)
def test_bytes_are_shown_as_they_look(data: bytes | None, kind: str) -> None:
    assert shown(data).kind == kind


def test_a_chosen_format_is_used() -> None:
    assert shown(b"3", Lens("json")).kind == "JSON"
    assert (found := shown(b"abc", Lens("json"))).kind == "text"
    assert found.note == "not JSON"
    assert shown(b'{"a": 1}', Lens("text")).kind == "text"
    assert text(b"a\xff", Lens("text")) == "a\\xff"
    assert text(b"ab", Lens("hex")) == hex_dump(b"ab")


@pytest.mark.parametrize(
    ("character", "told"),
    [
        ("\x1b", "␛"),
        ("\0", "␀"),
        ("\x7f", "␡"),
        ("\x9b", "U+009B"),
        ("\r", "␍"),
        ("\u202e", "U+202E"),
        ("\u2066", "U+2066"),
        ("\u200b", "U+200B"),
        ("\u00ad", "U+00AD"),
        ("\ufeff", "U+FEFF"),
        ("\u2028", "U+2028"),
        ("\u00a0", "U+00A0"),
    ],
)
def test_invisible_characters_are_made_visible(character: str, told: str) -> None:
    found = list(visible(f"a{character}b"))
    assert [piece.text for piece in found] == ["a", told, "b"]
    assert found[1].kind == "odd"
    assert found[1].title.startswith(f"U+{ord(character):04X}")
    inside = shown(json.dumps({"a": character}, ensure_ascii=False).encode())
    if character not in "\x1b\0\r":  # JSON has no such characters in strings.
        assert told in [piece.text for piece in inside.pieces]


def test_json_is_laid_out_as_it_was_written() -> None:
    given = '{"b":1.50,"a":[1e400,{"b":{}},[]],"b":"\\u00e9\\n","big":123456789012345678901234567890}'
    assert text(given.encode()) == (
        '{\n  "b": 1.50,\n  "a": [\n    1e400,\n    {\n      "b": {}\n    },\n    []\n  ],\n'
        '  "b": "\\u00e9\\n",\n  "big": 123456789012345678901234567890\n}'
    )
    kinds = {piece.text: piece.kind for piece in shown(given.encode()).pieces}
    assert (kinds['"b"'], kinds["1.50"], kinds['"\\u00e9\\n"']) == ("name", "number", "string")


def test_json_in_a_string_can_be_opened() -> None:
    given = json.dumps({"payload": json.dumps({"id": 7, "inner": json.dumps([1])}), "plain": "{no"}).encode()
    assert '\\"id\\": 7' in text(given)
    opened = text(given, Lens(nested=True))
    assert (
        '"payload": JSON in a string: {\n    "id": 7,\n    "inner": JSON in a string: [\n      1\n    ]\n  }' in opened
    )
    assert '"plain": "{no"' in opened


def test_hostile_json_is_text() -> None:
    assert json_pieces("[" * 100_000) is None
    assert json_pieces("[" * 60 + "]" * 60) is None
    assert shown(b"[" * 60 + b"]" * 60).kind == "text"
    assert shown(b"1" * 10_000, Lens("json")).kind == "JSON"


def test_long_values_are_shortened() -> None:
    found = shown(b"x" * 5_000)
    assert (found.cut, found.size, sum(len(piece.text) for piece in found.pieces)) == (True, 5_000, 2_000)
    assert shown(b"\n" * 100).cut
    assert not shown(b"x\n" * 30).cut
    # A part of a character at the end of what was kept is no reason to show hex.
    assert shown("é".encode() * 100 + b"\xc3", size=1_000_000).kind == "text"
    pieces, cut = shortened(visible("a\nb\nc"), 100, 2)
    assert ("".join(piece.text for piece in pieces), cut) == ("a\nb", True)
    assert shown(b"y" * 300, Lens(), HEADER).cut


def test_values_with_a_schema() -> None:
    found = shown(FRAMED)
    assert found.kind in ("text", "hex")
    assert "schema id 7: start the console with --registry URL" in found.note
    assert "--registry" in shown(b"abc", Lens("registry")).note
    decoded = shown(FRAMED, Lens(decode=lambda data: Decoded("Avro", '{"name":"alice"}', 7)))
    assert (decoded.kind, decoded.note) == ("Avro", "schema id 7")
    assert "".join(piece.text for piece in decoded.pieces) == '{\n  "name": "alice"\n}'
    failed = shown(FRAMED, Lens(decode=lambda data: Undecoded("schema id 7 does not exist")))
    assert failed.note == "schema id 7 does not exist"
    # What does not look like a frame is not sent to a registry.
    assert shown(b"plain", Lens(decode=lambda data: Undecoded("asked"))).note == ""
