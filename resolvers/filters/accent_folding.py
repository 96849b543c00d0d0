"""Folding of accents and case: a letter with marks is the letter, composed and decomposed alike.

Each character becomes its base letter, folded by `case_folding`; a combining mark becomes nothing.
A character that Unicode decomposes into several letters (a syllable of Hangul) stays as it is.
MongoDB's collation of strength 1 is the example; it also equates what Unicode does not decompose,
such as `æ` and `ae`. Source: https://www.unicode.org/reports/tr15/ (NFD).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from unicodedata import decomposition, normalize

from revstream.resolvers.filters.case_folding import case_folds, fold_case

__all__ = ["MARK", "accent_variants", "fold_accents"]

MARK = (
    # Combining marks of all scripts, then those of Cyrillic, Hebrew, Arabic and Kana.
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f\u0483-\u0487"
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u3099\u309a]"
)
"""Characters that are folded to nothing, as a class of a regular expression."""

_MARKS = re.compile(MARK)
# Letters with a stroke, which Unicode does not decompose, and eth.
_STROKES = {"đ": "d", "ð": "d", "ħ": "h", "ł": "l", "ø": "o"}
# Beginnings of a decomposition that is not canonical.
_NONE = ("", "<")
# No character with a case or a canonical decomposition lies above.
_END = 0x30000


def fold_accents(text: str) -> str:
    """Return the text with each character folded, and without marks."""
    return text.lower() if text.isascii() else text.translate(_folded())


def accent_variants(letter: str) -> str:
    """Return the characters that fold to this letter, as the content of a class; "" for itself.

    Args:
        letter: a character that `fold_accents` returned.
    """
    return _variants().get(letter, "")


@cache
def _folded() -> Mapping[int, str]:
    everything = "".join(map(chr, range(_END)))
    changed = {each for each in everything if decomposition(each)}
    changed |= {*case_folds(), *_MARKS.findall(everything), *_STROKES}
    return {ord(each): base for each in changed if (base := _base(each)) != each}


def _base(character: str) -> str:
    letters = character
    if _MARKS.match(character):
        letters = ""
    elif decomposition(character)[:1] not in _NONE:
        letters = _MARKS.sub("", normalize("NFD", character))
    folded = fold_case(letters if len(letters) < 2 else character)
    return _STROKES.get(folded, folded)


@cache
def _variants() -> Mapping[str, str]:
    variants: dict[str, set[int]] = {}
    for code, folded in _folded().items():
        if folded:
            variants.setdefault(folded, {ord(folded)}).add(code)
    return {folded: "".join(_ranges(sorted(codes))) for folded, codes in variants.items()}


def _ranges(codes: Iterable[int]) -> Iterable[str]:
    """Yield runs of neighbours as ranges, which keeps regular expressions short."""
    first = last = -2
    for code in [*codes, -2]:
        if code != last + 1:
            if last > first:
                yield "-"
            if last >= 0 and last > first:
                yield chr(last)
            if code >= 0:
                yield chr(code)
            first = code
        last = code
