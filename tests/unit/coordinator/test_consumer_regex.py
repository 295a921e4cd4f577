"""Regular expressions of subscriptions: RE2's syntax, whole names, bounded time and memory."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.consumer.regex import MAX_UNICODE_CLASSES, InvalidPattern, Pattern

NAMES = ["", "a", "orders", "orders-eu", "Orders.1", "__consumer_offsets", "x-9", "aaa", "a.b", "ab_c"]


@pytest.mark.parametrize(
    ("pattern", "python"),
    [
        (r"orders.*", None),
        (r"a|orders", None),
        (r"(a|b|\.)+", None),
        (r"a{2,3}", None),
        (r"a{3}", None),
        (r"a{2,}?", None),
        (r"a{,3}", r"a\{,3\}"),
        (r"[a-z_]+", None),
        (r"[^a-z]+.*", None),
        (r"[]a]+", None),
        (r"[a\-.]+b?", None),
        (r"[[:alpha:]]+", r"[A-Za-z]+"),
        (r"[[:^alpha:]x]+", r"[^A-Za-z]+|[x9-]+"),
        (r"(?i)ORDERS.*", None),
        (r"(?i:ORDERS)\.\d", None),
        (r"o(?i)RDERS", r"o(?i:RDERS)"),
        (r"\w+\W?\w*", None),
        (r"\D*", None),
        (r"\pL+", r"[A-Za-z]+"),
        (r"\p{Lu}.*", r"[A-Z].*"),
        (r"\P{Lu}+", r"[^A-Z]+"),
        (r"\p{^Lu}+", r"[^A-Z]+"),
        (r"\Qa.b\E", r"a\.b"),
        (r"\x61\x{2e}b", r"a\.b"),
        (r"\141+", r"a+"),
        (r"^orders$", None),
        (r"\Aorders\z", r"orders"),
        (r"orders\b.*", None),
        (r"orders\B.*", None),
        (r"(?P<head>a)+", None),
        (r"(?<head>a)+", r"a+"),
        (r"(?:a.?)*", None),
        (r"", None),
        (r"a||b", None),
        (r"()*a", None),
        (r"{a", r"\{a"),
        (r"__.*", None),
        (r"^*a", r"a"),
    ],
)
def test_the_whole_name_must_match(pattern: str, python: str | None) -> None:
    expected = [name for name in NAMES if re.fullmatch(python or pattern, name)]
    compiled = Pattern(pattern)
    assert [name for name in NAMES if compiled.matches(name)] == expected


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a",
        r"a)",
        r"[a",
        r"[z-a]",
        r"[[:nope:]]",
        r"*a",
        r"a**",
        r"a+*",
        r"a{2,1}",
        r"a{1001}",
        r"((a{100}){100}){100}",
        r"(?=a)",
        r"(?!a)",
        r"(?<=a)b",
        r"(?<!a)b",
        r"(?>a)",
        r"(?P<a",
        r"(a)\1",
        r"\Z",
        r"\y",
        r"\p{Nope}",
        r"\p{",
        r"\x{zz}",
        r"\xg",
        "a\\",
        "(" * 100 + ")" * 99,
        r"\pL{500}",
    ],
)
def test_an_expression_that_is_invalid_or_too_large_is_rejected(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"(a|a)*b", r"(.*)*x", r"(a?){200}a{200}", r"(\w+\s?)*!"])
def test_expressions_that_make_others_backtrack_take_no_time(pattern: str) -> None:
    assert not Pattern(pattern).matches("a" * 249 + "-")


@pytest.mark.parametrize(
    "pattern", [r"(?:(?:(?:){300}){300}){300}", r"(?:(?:.?){70}){70}x!", r"((a{1000})*){2}", r"(a{0,1000}){0,5}"]
)
def test_nested_counts_may_make_a_thousand_copies(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match=r"^invalid repetition size: \{.*may be at most 1,000"):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", [r"(?:a{10}){100}", r"(?:(?:){1000}){1}", r"(a{30}b{30}){30}?"])
def test_counts_that_make_no_more_copies_are_accepted(pattern: str) -> None:
    assert not Pattern(pattern).matches("x")


def test_an_empty_group_may_be_repeated() -> None:
    assert Pattern(r"(?:){1000}" * 900 + "a").matches("a")


@pytest.mark.parametrize(
    "pattern", [r"(?:.?){1000}x!", r"(?:a?|b?|c?){900}!", "(?:" + "[a-z]*" * 800 + ")*!", "(" * 5_000 + ")" * 5_000]
)
def test_many_names_are_matched_in_a_short_time(pattern: str) -> None:
    """Captures and states cost memory and time, which are limited. Without limits this takes minutes."""
    names = [f"{'a' * 240}{number}" for number in range(100)]
    assert Pattern(pattern).matching(names) == ()


def test_a_program_that_is_too_large_is_rejected_with_what_to_do() -> None:
    with pytest.raises(InvalidPattern, match=r"^pattern too large .* \(use smaller counts, or \* and \+ instead\)$"):
        Pattern("(?:.?){1000}" * 20)


def test_a_very_long_expression_is_rejected_before_it_is_read() -> None:
    with pytest.raises(InvalidPattern, match="it has more than 10,000 characters"):
        Pattern("a" * 10_001)


def test_very_many_unicode_classes_are_rejected_before_they_are_read() -> None:
    with pytest.raises(InvalidPattern, match="it has more than 100 classes"):
        Pattern(r"\pL" * (MAX_UNICODE_CLASSES + 1))


def test_an_expression_that_is_rejected_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidPattern, match=r"^missing \): \(a$"):
        Pattern("(a")
    assert capfd.readouterr() == ("", "")


def test_the_names_that_match_are_returned_in_their_order() -> None:
    assert Pattern("o.*|a").matching(["orders", "b", "a", "o"]) == ("orders", "a", "o")


def test_a_character_is_a_character_and_not_a_byte() -> None:
    assert Pattern("ä|.").matches("ä")
    assert not Pattern("..").matches("ä")


def test_a_newline_at_the_end_does_not_match() -> None:
    assert not Pattern("orders$").matches("orders\n")


def test_alternatives_with_many_states_match() -> None:
    pattern = Pattern(r"(a|b)*a(a|b){10}")
    names = [format(number, "013b").replace("0", "a").replace("1", "b") for number in range(0, 8192, 3)]
    assert [name for name in names if pattern.matches(name)] == [name for name in names if name[2] == "a"]


ATOMS = st.sampled_from(["a", "b", "-", r"\.", ".", "[ab]", "[^a]", r"\w", r"\d", r"\b", "^", "$"])


def combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?", "{0,}"])
    return (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})")
        | st.tuples(inner, repeats).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    )


@given(st.recursive(ATOMS, combine, max_leaves=8), st.text("ab-.1", max_size=6))
def test_it_agrees_with_python_where_both_have_the_syntax(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) == bool(re.fullmatch(pattern.replace("$", r"\Z"), name))


@given(st.text("ab()[]{}*+?|\\^$.-,:<>P=!iQEpx0123", max_size=20))
def test_any_text_is_an_expression_or_is_rejected(pattern: str) -> None:
    try:
        Pattern(pattern).matches("ab-a")
    except InvalidPattern:
        pass
