"""The regular expressions of subscriptions: RE2's syntax, in linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.consumer_regex import Pattern, compiled
from ottla.coordinator.consumer_regex_syntax import InvalidPattern

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
def test_the_whole_name_matches_as_it_should(pattern: str, python: str | None) -> None:
    expected = [name for name in NAMES if re.fullmatch(python or pattern, name)]
    compiled = Pattern(pattern)
    assert [name for name in NAMES if compiled.matches(name)] == expected
    assert [name for name in NAMES if compiled.matches(name)] == expected  # From the states that are there now.


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
        r"(?P<1>a)",
        r"(?P<a",
        r"(a)\1",
        r"\Z",
        r"\C",
        r"\y",
        r"\p{Nope}",
        r"\p{",
        r"\x{zz}",
        r"\xg",
        "a\\",
        "(" * 200 + ")" * 200,
    ],
)
def test_what_is_not_re2_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"(a|a)*b", r"(.*)*x", r"(a?){200}a{200}", r"(\w+\s?)*!"])
def test_expressions_that_ruin_others_take_no_time(pattern: str) -> None:
    assert not Pattern(pattern).matches("a" * 249 + "-")


@pytest.mark.parametrize(
    "pattern", [r"(?:(?:(?:){300}){300}){300}", r"(?:(?:.?){70}){70}x!", r"((a{1000})*){2}", r"(a{0,1000}){0,5}"]
)
def test_counts_inside_of_each_other_may_make_a_thousand_copies_as_in_re2(pattern: str) -> None:
    with pytest.raises(
        InvalidPattern, match=r"^invalid repeat count: .* make them smaller, or write \* or \+ instead$"
    ):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern", [r"(?:a{10}){100}", r"((a{1000}){0}){1000}b?", r"(?:(?:){1000}){1}", r"(a{30}b{30}){30}?"]
)
def test_counts_that_make_no_more_copies_are_taken(pattern: str) -> None:
    assert not Pattern(pattern).matches("x")


def test_nothing_repeated_is_nothing() -> None:
    assert Pattern(r"(?:){1000}" * 900 + "a").matches("a")


@pytest.mark.parametrize("pattern", [r"(?:.?){1000}x!", r"(?:a?|b?|c?){900}", "(?:" + "[a-z]*" * 800 + ")*"])
def test_an_expression_that_may_take_long_for_one_name_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match="a name may take more than 150,000 steps to match"):
        Pattern(pattern)


def test_a_very_long_expression_is_not_even_read() -> None:
    with pytest.raises(InvalidPattern, match="it has more than 10,000 characters"):
        Pattern("a" * 10_001)


def test_all_names_that_match_are_found_in_their_order() -> None:
    assert Pattern("o.*|a").matching(["orders", "b", "a", "o"]) == ("orders", "a", "o")


def test_an_expression_is_compiled_once() -> None:
    assert compiled("orders-.*") is compiled("orders-.*")


def test_names_that_are_not_ascii_match_nothing_but_what_takes_anything() -> None:
    assert not Pattern("ä").matches("ä")
    assert not Pattern(".").matches("ä")


def test_more_states_than_are_kept_are_made_again() -> None:
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
def test_it_agrees_with_python_where_both_know_the_syntax(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) == bool(re.fullmatch(pattern.replace("$", r"\Z"), name))


@given(st.text("ab()[]{}*+?|\\^$.-,:<>P=!iQEpx0123", max_size=20))
def test_any_text_is_an_expression_or_is_refused(pattern: str) -> None:
    try:
        Pattern(pattern).matches("ab-a")
    except InvalidPattern:
        pass
