# SPDX-License-Identifier: Apache-2.0
"""Which patterns RE2 compiles. Expected: https://github.com/google/re2/wiki/Syntax."""

import pytest

from pilothouse.config import regexes

GOOD = [
    "/a.*",
    "^/v[0-9]+/(?:users|items)$",
    "(?i)/shop",
    "/(?i:a)b",
    "(?P<name>a)(?<other>b)",
    "a*?b+?c??d{2,3}?",
    "a{,2}",
    "a{x}",
    "{",
    "a{01}",
    "[]a]",
    "[^]a]",
    "[a-z-]",
    "[-a]",
    "[a-c-e]",
    "[[:alpha:][:^digit:]]",
    "[[:]",
    r"[\d\pL\x{10FFFF}\n]",
    r"\d\D\s\S\w\W\b\B\A\z\C",
    r"\pL\p{Lu}\P{Greek}\p{^Latin}",
    r"\Qa.b[\E*",
    r"\Q(",
    r"\.\-\_\/\n\x41\012\0",
    "(|a)*",
    "^*",
    "a(?i)*",
    "é+",
    "(?:a{30}){33}",
    "a{1000}",
    "x{2,}",
    "",
]
BAD = {
    "(?=a)": "no lookaround",
    "(?!a)": "no lookaround",
    "(?<=a)b": "no lookaround",
    "(?<!a)b": "no lookaround",
    "(?>a)": "no construct of RE2",
    "(?#a)": "no construct of RE2",
    "(?P=a)": "no construct of RE2",
    "(?i-)a": "no construct of RE2",
    r"(a)\1": "no back-references",
    r"(?P<a>b)\k<a>": "no back-references",
    r"\Z": "is no escape of RE2",
    r"\e": "is no escape of RE2",
    r"\u0041": "is no escape of RE2",
    r"\x4": "is no escape of RE2",
    "a\\": "ends with a backslash",
    r"\x{110000}": "beyond Unicode",
    r"\p{Nonsense1}": "names no Unicode group",
    r"\pX": "names no Unicode group",
    "a**": "repeats a repeat",
    "a*+": "repeats a repeat",
    "a{2}{3}": "repeats a repeat",
    "*a": "nothing to repeat",
    "(*a)": "nothing to repeat",
    "a|*": "nothing to repeat",
    "a{1001}": "repeats too often",
    "a{3,2}": "repeats too often",
    "(?:a{40}){40}": "nested at most 1000 times",
    "(a": "a ( is not closed",
    "a)": "a ) closes nothing",
    "[a": "a [ is not closed",
    "[a-": "a [ is not closed",
    "[": "a [ is not closed",
    "[z-a]": "ends before it begins",
    "[[:nope:]]": "is no class of characters",
    "(?P<a>b)(?P<a>c)": "is there twice",
}


@pytest.mark.parametrize("pattern", GOOD)
def test_what_re2_compiles_is_no_problem(pattern: str):
    """Constructs that Python's re refuses among them."""
    assert regexes.problem(pattern) is None


@pytest.mark.parametrize("pattern", BAD)
def test_what_re2_refuses_is_a_problem_that_says_why(pattern: str):
    """Constructs that Python's re knows among them."""
    problem = regexes.problem(pattern)
    assert problem is not None
    assert BAD[pattern] in problem
