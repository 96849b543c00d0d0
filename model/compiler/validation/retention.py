"""Read `@collection(keep:)`: how much of each document's history stays."""

from __future__ import annotations

import re

from revstream.model.compiler.parsing.declarations import TypeDeclaration
from revstream.model.compiler.parsing.directives import DirectiveUsage
from revstream.model.definition import Keep

__all__ = ["check_keep", "keep_of"]

_UNITS_S = {
    "hour": 3600,
    "day": 86_400,
    "week": 7 * 86_400,
    "month": 30 * 86_400,
    "year": 365 * 86_400,
}
_VERSION = "version"
_UNIT_NAMES = f"{', '.join(_UNITS_S)} and {_VERSION}"
_TEXT = re.compile(r"([0-9]+) +([a-z]+?)s?")
# Before 1970 there is no moment of the stream; and MongoDB counts versions in 32 bits.
_MOST_S = 1000 * _UNITS_S["year"]
_MOST_VERSIONS = 1_000_000

_MEND = 'write a number and a unit, as in keep: "400 days", keep: "2 years" or keep: "50 versions"'


def keep_of(directive: DirectiveUsage) -> Keep | None:
    """Return the retention of a collection; None if it keeps everything, or is invalid."""
    text = directive.text("keep")
    found = None if text is None else _TEXT.fullmatch(text.strip())
    if text is None or found is None:
        return None
    number, unit = int(found[1]), found[2]
    if unit == _VERSION:
        return Keep(text=text.strip(), versions=number) if _fits(number, _MOST_VERSIONS) else None
    if unit not in _UNITS_S or not _fits(number * _UNITS_S[unit], _MOST_S):
        return None
    return Keep(text=text.strip(), seconds=number * _UNITS_S[unit])


def check_keep(type_: TypeDeclaration, directive: DirectiveUsage) -> None:
    """Report what is wrong with it."""
    text = directive.text("keep")
    if text is None:
        return
    if keep_of(directive) is None:
        type_.place.error(directive.at("keep"), f'keep: "{text}" {_problem(text)}', _MEND)
    elif directive.text("history") not in (None, "ARCHIVE"):
        type_.place.error(
            directive.at("keep"),
            f"keep: history is {directive.text('history')}, expected ARCHIVE, whose versions it "
            "deletes",
            "remove keep; your programs delete what they store",
        )


def _problem(text: str) -> str:
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        return "is not a number and a unit"
    number, unit = int(found[1]), found[2]
    if unit != _VERSION and unit not in _UNITS_S:
        return f'has the unit "{text.rsplit(maxsplit=1)[-1]}", expected one of {_UNIT_NAMES}'
    if number == 0:
        return "is 0, minimum is 1"
    return f"is too long, maximum is 1000 years or {_MOST_VERSIONS:,} versions"


def _fits(value: int, most: int) -> bool:
    return 0 < value <= most
