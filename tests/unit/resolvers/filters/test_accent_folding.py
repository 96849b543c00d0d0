"""Letters without their accents and case."""

from __future__ import annotations

import re
from unicodedata import normalize

import pytest

from revstream.resolvers.filters.accent_folding import MARK, accent_variants, fold_accents


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Crème Brûlée", "creme brulee"),
        ("Łódź, Đà Nẵng, Ørsted", "lodz, da nang, orsted"),
        ("\u212bngström", "angstrom"),
        ("\u0386\u03a3", "\u03b1\u03c3"),
        ("Straße, Æon", "straße, æon"),
        ("İstanbul", "istanbul"),
        ("가, 日, कु, q\u0301", "가, 日, कु, q"),
        ("", ""),
        ("\u0301", ""),
    ],
)
def test_letters_lose_their_marks(text: str, folded: str) -> None:
    """Letters stay letters: what Unicode does not decompose into one letter is another one."""
    assert fold_accents(text) == folded
    assert fold_accents(folded) == folded
    if "가" not in text:
        assert fold_accents(normalize("NFD", text)) == folded


def test_classes_contain_exactly_what_folds_to_their_letter() -> None:
    """A regular expression with the class finds what folding finds."""
    characters = [chr(each) for each in range(0x3400)]
    for letter in ("a", "o", "\u03c9", "и", "か", "1"):
        variants = re.compile(f"[{accent_variants(letter) or letter}]")
        folded = [each for each in characters if fold_accents(each) == letter]
        assert [each for each in characters if variants.match(each)] == folded
    marks = [each for each in characters if fold_accents(each) == ""]
    assert marks == [each for each in characters if re.match(MARK, each)]
