from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.schemas.regex_syntax import regex_fault


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a", "a|b", "|a", "a{2,}", "a{2,3}?", "a{0}", "^$", "(a)(?:b)(?=c)(?!d)(?<=e+)(?<!f)",
        "(?<name>a)\\k<name>", "(?P<name>a)(?P=name)",
        "(?i:x)", "(?>a)", "a*+", "[^]", "[]", "[^-a]", "[a-]", "[\\]-a]", "[a-c-e]", "[\\w-x]",
        "[[a-z]--[aeiou]]", "[[:alpha:]]", "\\p{L}\\P{Lu}", "\\/", "\\cX", "\\u{1F600}", "\\-", "{", "a{,3}", "a{x}",
        "]", "}", "(?=a)*", "[(]", "[)*]", "\\(", "^\\d{3}-\\d{4}$", "^[a-zA-Z0-9_-]{1,64}$", "[+--]", "[\n-a]", "(|a)",
    ],
)  # fmt: skip
def test_patterns_that_some_dialect_accepts(pattern: str) -> None:
    assert regex_fault(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "`(`"), ("a(b", "`(`"), ("(?:a", "`(`"), (")", "`)`"), ("a)(", "`)`"), ("[", "`[`"), ("[a-", "`[`"),
        ("[\\]", "`[`"), ("a\\", "backslash"), ("*a", "`*`"), ("a|+", "`+`"), ("({2})", "`{2}`"),
        ("a{3,1}", "`{3,1}`"), ("[z-a]", "reversed"), ("[^z-a]", "reversed"), ("x[9-0]y", "reversed"),
    ],
)  # fmt: skip
def test_patterns_that_no_dialect_accepts(pattern: str, said: str) -> None:
    assert said in regex_fault(pattern)


@pytest.mark.filterwarnings("ignore:Possible nested set")
@given(st.text("ab()[]{}|*+?^$\\-,12.", max_size=12))
def test_patterns_that_python_accepts(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError):
        return
    # Only Python reads a `]` right after the `[` as a member of the class.
    if "[]" not in pattern and "[^]" not in pattern:
        assert regex_fault(pattern) == ""


@pytest.mark.parametrize("piece", ["[", "(?", "a*?", "[a-b]", "{1", "\\", "[a-", "(a|", "a{1,2}"])
def test_time_is_linear(piece: str) -> None:
    def seconds(size: int) -> float:
        start = time.perf_counter()
        regex_fault(piece * size)
        return time.perf_counter() - start

    assert min(seconds(40_000) for _ in range(3)) < 20 * min(seconds(10_000) for _ in range(3)) + 0.05
