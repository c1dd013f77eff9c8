"""Topic patterns: RE2's syntax, whole names, and a time that no pattern can stretch."""

import contextlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.coordinator.pattern_syntax import PatternError
from headwater.coordinator.patterns import Pattern

NAMES = ["orders", "orders-eu", "orders-us-12", "Orders", "a.b", "a_b", "x", "", "aab", "aaab", "12", "__offsets"]

# Patterns that mean the same to Python, which has a matcher of its own.
LIKE_PYTHON = [
    "orders",
    "orders.*",
    "orders-(eu|us-[0-9]+)",
    "(?i)ORDERS",
    "(?i:O)rders",
    "[^a-z]+",
    r"\w+\.\w+",
    r"[\w.-]{2,}",
    "a*b|x|",
    "(a|aa)*b",
    "a{2}b",
    "a{3,}b",
    "a{1,2}b",
    "^orders$",
    r"\Aorders-eu",
    r"orders\b.*",
    r"or\Bders",
    "a??.*?b",
    "(?P<name>x)",
    "()*",
    "(a*)*b",
    r"\x61\141b",
    r"__\S+",
    r"[\d]+",
]


@pytest.mark.parametrize("pattern", LIKE_PYTHON)
def test_a_pattern_matches_whole_names(pattern: str) -> None:
    expected = [name for name in NAMES if re.fullmatch(pattern, name, re.ASCII)]
    assert [name for name in NAMES if Pattern(pattern).matches(name)] == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"\Qa.b\E", ["a.b"]),
        (r"\Qaa\E*b", ["aab", "aaab"]),
        ("[[:alpha:]]+", ["orders", "Orders", "x", "aab", "aaab"]),
        ("[[:^alpha:][:digit:]]+", ["12"]),
        (r"\p{Lu}\p{Ll}+", ["Orders"]),
        (r"\PL+", ["12"]),
        (r"\x{61}\x{2e}b", ["a.b"]),
        ("(?<name>x)", ["x"]),
        (r"orders\z", ["orders"]),
        ("[]x]", ["x"]),
        ("a{,2}b", []),
        ("(?s-i:x)", ["x"]),
    ],
)
def test_what_only_re2_has_is_understood(pattern: str, expected: list[str]) -> None:
    assert [name for name in NAMES if Pattern(pattern).matches(name)] == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "a(?=b)",
        "a(?!b)",
        "(?<=a)b",
        "(?<!a)b",
        r"(a)\1",
        "(?P<n>a)(?P=n)",
        "(?>a)",
        "a++",
        "a**",
        "a{2}{3}",
        "*a",
        "(a",
        "a)",
        "[a",
        "[b-a]",
        r"[a-\d]",
        "[[:nothing:]]",
        r"\y",
        r"\Z",
        r"\p{Nothing}",
        r"\x{110000}",
        r"\x1",
        "a{1001}",
        "a{2,1}",
        "(?x)a",
        "(?i",
        "(?-)",
        "(?P<a>x)(?P<a>y)",
        "(?P<>x)",
        "a\\",
        "(((a{99}){99}){99}){99}",
        "(" * 500 + ")" * 500,
    ],
)
def test_what_re2_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)


@given(st.text("ab.*+?()[]{}|\\^$-12,:i<>PQEdpL", max_size=20), st.text("ab1-.", max_size=10))
def test_any_text_is_a_pattern_or_refused(pattern: str, name: str) -> None:
    with contextlib.suppress(PatternError):
        assert Pattern(pattern).matches(name) in (True, False)


@given(
    st.recursive(
        st.sampled_from(["a", "b", ".", "[ab]", "[^a]"]),
        lambda inner: st.one_of(
            st.builds("({}|{})".format, inner, inner),
            st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}"])),
            st.builds("{}{}".format, inner, inner),
        ),
        max_leaves=6,
    ),
    st.text("abc", max_size=8),
)
def test_patterns_and_names_agree_with_another_matcher(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*(a*)*b", "(a|b)*a(a|b){20}c"])
def test_a_pattern_made_to_take_for_ever_does_not(pattern: str) -> None:
    matcher = Pattern(pattern)
    before = time.process_time()
    for number in range(20):
        assert not matcher.matches("ab" * number + "a" * (249 - 2 * number))
    assert time.process_time() - before < 2
