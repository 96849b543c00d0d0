"""Case folding, one character for one."""

from __future__ import annotations

import sys

from revstream.resolvers.filters.case_folding import case_variants, fold_case


def test_every_character_folds_to_one_of_its_variants() -> None:
    """Folding is idempotent, keeps lengths, and agrees with Python where that keeps them."""
    for character in map(chr, range(sys.maxunicode + 1)):
        folded = fold_case(character)
        assert len(folded) == 1
        assert fold_case(folded) == folded
        if len(character.casefold()) == 1:
            assert folded == character.casefold()
        if folded != character:
            assert {folded, character} <= set(case_variants(character))


def test_the_variants_of_a_character_are_those_that_fold_alike() -> None:
    """Also where upper and lower case are not the only ones."""
    assert set(case_variants("k")) == {"k", "K", "\u212a"}
    assert set(case_variants("\u1e9e")) == {"ß", "\u1e9e"}
    assert case_variants("日") == "日"
    for variants in map(case_variants, "kß\u03c3\u03b8"):
        assert {case_variants(each) for each in variants} == {variants}


def test_a_text_keeps_its_length() -> None:
    """A character that Python folds to two is folded to one."""
    assert fold_case("STRA\u1e9eE ß \u0130") == "straße ß \u0130"
    assert fold_case("\u03a3\u03c2x") == "\u03c3\u03c3x"
