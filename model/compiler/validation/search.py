"""Read `@search`: the fields of a text index, their weights, and the language of the words."""

from __future__ import annotations

from revstream.model.compiler.parsing.declarations import Declarations, TypeDeclaration
from revstream.model.compiler.parsing.directives import DirectiveUsage
from revstream.model.compiler.validation.indexes import follow, path_problem, stored_path
from revstream.model.definition import HistoryKind, Scalar, SearchIndex
from revstream.model.naming import did_you_mean

__all__ = ["LANGUAGES", "check_search", "search_of"]

LANGUAGES = (
    "none",
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "german",
    "hungarian",
    "italian",
    "norwegian",
    "portuguese",
    "romanian",
    "russian",
    "spanish",
    "swedish",
    "turkish",
)
"""Languages of MongoDB's text indexes; `none` has no stems and no stop words."""

_MOST_WEIGHT = 99_999


def search_of(type_: TypeDeclaration, declarations: Declarations) -> SearchIndex | None:
    """The text index of an entity without mistakes."""
    directive = type_.directives.one("search")
    if directive is None:
        return None
    names = directive.texts("fields") or ()
    return SearchIndex(
        names=names,
        fields=tuple(stored_path(type_, each, declarations) for each in names),
        weights=directive.numbers("weights") or (1,) * len(names),
        language=directive.text("language") or "none",
    )


def check_search(declarations: Declarations) -> None:
    """Report what is wrong with each `@search`."""
    for type_ in declarations.types.values():
        directive = type_.directives.one("search")
        if directive is not None:
            _check(type_, directive, declarations)


def _check(type_: TypeDeclaration, directive: DirectiveUsage, declarations: Declarations) -> None:
    place = type_.place
    collection = type_.directives.one("collection")
    if collection is None:
        place.error(
            directive.node,
            f"@search: {type_.name} is embedded, expected an entity",
            "put it on the entity, with the path to the field: dimensions.note",
        )
        return
    if collection.text("history") not in (HistoryKind.ARCHIVE.value, None):
        place.error(
            directive.node,
            f"@search: {type_.name} has history {collection.text('history')}, expected ARCHIVE",
            "remove @search, or migrate the collection to ARCHIVE",
        )
    names = directive.texts("fields")
    if names is None:
        return
    if not names:
        place.error(directive.at("fields"), "@search: no fields, expected at least one", "name one")
    for name in names:
        problem = _problem(type_, name, declarations)
        if problem:
            place.error(directive.at("fields"), *problem)
    if len(set(names)) < len(names):
        twice = next(each for each in names if names.count(each) > 1)
        place.error(directive.at("fields"), f'@search names "{twice}" twice', "name it once")
    weights = directive.numbers("weights")
    if weights is not None and len(weights) != len(names):
        place.error(
            directive.at("weights"),
            f"@search: {len(weights)} weights, expected one for each of {len(names)} fields",
            "name a weight for each field, in their order",
        )
    for weight in weights or ():
        if not 1 <= weight <= _MOST_WEIGHT:
            place.error(
                directive.at("weights"),
                f"@search: weight {weight}, expected 1 to {_MOST_WEIGHT:,}",
                "choose a weight in this range",
            )
    language = directive.text("language")
    if language is not None and language not in LANGUAGES:
        place.error(
            directive.at("language"),
            f'@search: language "{language}", expected one of MongoDB\'s',
            did_you_mean(language, LANGUAGES, f"choose from {', '.join(LANGUAGES)}"),
        )


def _problem(
    type_: TypeDeclaration, name: str, declarations: Declarations
) -> tuple[str, str] | None:
    problem = path_problem(type_, name, declarations, "@search")
    if problem is not None:
        return problem
    fields = follow(type_, name, declarations).fields
    if declarations.member(type_, name.partition(".")[0]) is not None:
        # Other members may have a field of this stored name, for fewer callers.
        return (
            f'@search: "{name}" is in a member of {type_.name}, expected a field of {type_.name}',
            f"move it to {type_.name}, or name another field",
        )
    for field in fields[:-1]:
        inner = declarations.embedded(field)
        if inner is not None and inner.discriminator is not None:
            # Its members may have other fields of this stored name, for fewer callers.
            return (
                f'@search: "{name}" is in a {inner.spot.word}, expected a field in none',
                "name another field",
            )
    kind = declarations.kind(fields[-1]) if fields else Scalar.INT
    if kind is None or kind is Scalar.STRING:
        return None
    shown = fields[-1].type_text if fields else "a number"
    return f'@search: "{name}" is {shown}, expected String', "name a field of text"
