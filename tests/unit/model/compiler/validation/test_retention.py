"""@collection(keep:): by age or by count, and invalid texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Entity, Keep
from revstream.model.errors import ModelError

MEND = 'write a number and a unit, as in keep: "400 days", keep: "2 years" or keep: "50 versions"'
UNITS = "hour, day, week, month, year and version"


def product(keep: str, more: str = "") -> str:
    return f"""
        type Product @collection(name: "products", keep: {keep}{more}) {{ # !
          id: ID! name: String }}
        """


def entity(keep: str) -> Entity:
    return read_model(product(keep)).entity("Product")


@pytest.mark.parametrize(
    ("text", "seconds", "versions"),
    [
        ("36 hours", 36 * 3600, None),
        ("1 day", 86_400, None),
        ("400 days", 400 * 86_400, None),
        ("3 weeks", 21 * 86_400, None),
        ("6 months", 180 * 86_400, None),
        ("2 years", 730 * 86_400, None),
        ("1 version", None, 1),
        ("50 versions", None, 50),
    ],
)
def test_retention_is_an_age_or_a_count(
    text: str, seconds: int | None, versions: int | None
) -> None:
    """The text has either an age or a count, in singular or plural."""
    assert entity(f'"{text}"').keep == Keep(text=text, seconds=seconds, versions=versions)


def test_the_default_keeps_all_versions() -> None:
    """An omitted `keep` and a null `keep` are equal."""
    assert entity("null").keep is None
    plain = read_model('type Product @collection(name: "products") { id: ID! name: String }')
    assert plain.entity("Product").keep is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a number and a unit"),
        ("days", "is not a number and a unit"),
        ("400", "is not a number and a unit"),
        ("-1 days", "is not a number and a unit"),
        ("1.5 days", "is not a number and a unit"),
        ("5 eons", f'has the unit "eons", expected one of {UNITS}'),
        ("0 days", "is 0, minimum is 1"),
        ("0 versions", "is 0, minimum is 1"),
        ("2000 years", "is too long, maximum is 1000 years or 1,000,000 versions"),
        ("9999999 versions", "is too long, maximum is 1000 years or 1,000,000 versions"),
    ],
)
def test_an_invalid_text_is_an_error(
    mistake: Callable[[str], ModelError], text: str, problem: str
) -> None:
    """The error has its location and a fix."""
    error = mistake(product(f'"{text}"'))
    assert (error.subject, error.problem, error.mend) == (
        "Product",
        f'keep: "{text}" {problem}',
        MEND,
    )


def test_only_archived_versions_can_be_truncated(
    mistake: Callable[[str], ModelError],
) -> None:
    """Versions in the other layouts belong to the programs that write them."""
    error = mistake(product('"1 day"', ", history: EMBEDDED"))
    assert "history is EMBEDDED, expected ARCHIVE" in error.problem
