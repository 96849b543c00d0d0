"""streams.core.lru_cache: what was asked for lately, within bounds."""

from __future__ import annotations

from revstream.streams.core.lru_cache import LruCache


def test_what_was_not_asked_for_longest_goes_first() -> None:
    """No more are kept than allowed."""
    recent = LruCache[str, int](most=2, most_size=1000)
    for number, text in enumerate("ab"):
        recent.keep(text, number, 1)
    assert recent.get("a") == 0
    recent.keep("c", 2, 1)
    assert recent.get("b") is None
    assert recent.get("a") == 0
    assert recent.get("c") == 2


def test_all_texts_together_are_bounded() -> None:
    """Many long ones push one another out, and a very long one is not kept at all."""
    recent = LruCache[str, int](most=500, most_size=100)
    for letter in "abcdef":
        recent.keep(letter, 1, 25)
    assert len(recent) == 4
    recent.keep("x", 1, 26)
    assert recent.get("x") is None
