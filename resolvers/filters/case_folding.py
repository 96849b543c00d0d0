"""Simple case folding of Unicode: one character for one, so that a text keeps its length.

`str.casefold` folds some characters to several (`ß` to `ss`); such a character is folded to its
lower case here, if that is one character. Accents are kept, and texts are not normalized.
Source: https://www.unicode.org/reports/tr44/#CaseFolding.txt (status C and S).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

__all__ = ["case_folds", "case_variants", "fold_case"]

# No character with a case lies above.
_END = 0x20000


def fold_case(text: str) -> str:
    """Return the text with each character folded."""
    folded = text.casefold()
    # No character folds to nothing, so equal lengths mean one character for each.
    return folded if len(folded) == len(text) else text.translate(_translation())


def case_variants(character: str) -> str:
    """Return all characters that fold as this one does, this one included."""
    folded = fold_case(character)
    return _variants().get(folded, folded)


@cache
def case_folds() -> Mapping[str, str]:
    """Return what each character folds to, without those that stay as they are."""
    folded = {}
    for character in map(chr, range(_END)):
        for form in (character.casefold(), character.lower()):
            if len(form) == 1:
                if form != character:
                    folded[character] = form
                break
    return folded


@cache
def _translation() -> Mapping[int, str]:
    return {ord(character): form for character, form in case_folds().items()}


@cache
def _variants() -> Mapping[str, str]:
    variants: dict[str, str] = {}
    for character, folded in case_folds().items():
        variants[folded] = variants.get(folded, folded) + character
    return variants
