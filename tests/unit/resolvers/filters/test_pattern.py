"""Regular expressions of filters, as they are sent to MongoDB, and those that are refused."""

from __future__ import annotations

import pytest

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.pattern import Pattern, parse_pattern

LIMIT = "(*LIMIT_MATCH=200000)\\A"


@pytest.mark.parametrize(
    ("pattern", "expression", "prefix"),
    [
        ("a.c", "[\\s\\S]*?(?:a[^\\n]c)", ""),
        ("^AB-\\d+$", "(?:\\AAB-[0-9]{1,1000}\\z)", "AB-"),
        ("^ab*", "(?:\\Aab{0,1000})", "a"),
        ("^a|^b", "(?:\\Aa|\\Ab)", ""),
        ("^a|b", "[\\s\\S]*?(?:\\Aa|b)", ""),
        ("(^|,)a{2}(b|c){1,3}", "[\\s\\S]*?(?:(?:\\A|,)a{2,2}(?:b|c){1,3})", ""),
        ("(?:a+)?", "[\\s\\S]*?(?:(?:a{1,1000}){0,1})", ""),
        ("[^a-z\\d_\\]-]", "[\\s\\S]*?(?:[^a-z0-9_\\]\\-])", ""),
        ("\\W\\.\\*\\b\n\0é", "[\\s\\S]*?(?:[^0-9A-Z_a-z]\\.\\*\\b\n\\x00é)", ""),
        ("^\\.x", "(?:\\A\\.x)", ".x"),
        ("^^a", "(?:\\A\\Aa)", ""),
        ("", "[\\s\\S]*?(?:)", ""),
    ],
)
def test_a_pattern_is_written_anew(pattern: str, expression: str, prefix: str) -> None:
    """Each repeat has a maximum, and PCRE makes one attempt with a limit of steps."""
    assert parse_pattern(pattern, "T.t.matches") == Pattern(LIMIT + expression, prefix)


@pytest.mark.parametrize(
    ("pattern", "mistake"),
    [
        ("(a+)+", "has '+' at character 5, expected a maximum of 10 repeats of a group, and no"),
        ("(a){11}", "has '{' at character 4, expected a maximum of 10 repeats of a group"),
        ("(a*){2}", "and no repeats inside of it; repeat single characters or classes"),
        ("a**", "has '*' at character 3, expected one repeat of a character, not two; remove it"),
        ("a+?", "has '?' at character 3, expected one repeat of a character"),
        ("^*", "has '*' at character 2, expected a character before it, to repeat"),
        ("\\b+", "has '+' at character 3, expected a character before it, to repeat"),
        ("*", "has '*' at character 1, expected a character before it, to repeat; write \\*"),
        ("(?=a)", "has '?' at character 2, expected a group; lookaround, names and options"),
        ("(?i)a", "lookaround, names and options are not supported; use containsIgnoreCase, or"),
        ("(?si:a)", "options are not supported; use containsIgnoreCase, or another operator that"),
        ("(*UCP)a", "has '*' at character 2, expected a character before it"),
        ("(a)\\1", "has '1' at character 5, expected one of d, D, w, W, s, S, b, n, r, t"),
        ("\\p{L}", "has 'p' at character 2, expected one of d, D, w"),
        ("\\", "has its end at character 2, expected a character after \\"),
        ("[[:alpha:]]", "has '[' at character 2, expected a character; write \\[ for it"),
        ("[]", "has ']' at character 2, expected a character in the class"),
        ("[\\D]", "has 'D' at character 3, expected one of d, w, s, n, r, t or a sign"),
        ("[z-a]", "expected a range from a lower to a higher character"),
        ("[a", "has its end at character 3, expected a closing bracket"),
        ("(a", "has its end at character 3, expected a closing parenthesis"),
        ("a)", "has ')' at character 2, expected an opening parenthesis before it"),
        ("a{x}", "has '{' at character 2, expected a number of repeats, such as {2,5}"),
        ("a{3,2}", "expected repeats in ascending order, at most 1000 in all; lower them"),
        ("a{600}b{600}", "expected repeats in ascending order, at most 1000 in all"),
        ("((((((a))))))", "expected at most 5 groups inside of each other; nest them less"),
        ("a" * 201, "T.t.matches: 201 characters, maximum is 200; shorten the pattern"),
    ],
)
def test_a_pattern_outside_of_the_subset_is_refused(pattern: str, mistake: str) -> None:
    """The message names the character and says what to write."""
    with pytest.raises(BadUserInput) as caught:
        parse_pattern(pattern, "T.t.matches")
    assert mistake in caught.value.message
