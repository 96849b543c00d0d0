"""Validation of `@layout`: names of the fields in which a collection keeps its versions itself.

Features that such a collection cannot have are reported here too.
"""

from __future__ import annotations

from collections.abc import Iterator

from revstream.model.compiler.parsing.declarations import Declarations, TypeDeclaration
from revstream.model.compiler.parsing.directives import DirectiveUsage
from revstream.model.compiler.validation.collections import OWN_SUFFIXES, name_problem
from revstream.model.compiler.validation.fields import KEPT_BESIDE, stored_name_problem
from revstream.model.definition import HistoryKind, LayoutFields

__all__ = ["check_layouts", "layout_of"]

_NAMES = {
    HistoryKind.DOCUMENT_PER_VERSION: ("document", "deleted", "at"),
    HistoryKind.CURRENT_FLAG: ("document", "current", "deleted", "at"),
    HistoryKind.EMBEDDED: ("current", "previous", "deleted", "at"),
    HistoryKind.SEPARATE: ("document", "previous", "deleted", "at"),
    HistoryKind.DELTAS: ("document", "unset", "whole", "deleted", "at"),
}
"""Which of the names each layout goes by."""

_BESIDE_CONTENT = {
    HistoryKind.DOCUMENT_PER_VERSION: ("document", "deleted"),
    HistoryKind.CURRENT_FLAG: ("document", "current", "deleted"),
    HistoryKind.EMBEDDED: ("deleted",),
    HistoryKind.SEPARATE: ("document", "deleted"),
    HistoryKind.DELTAS: ("document", "unset", "whole", "deleted"),
}
"""Which of them stand among the fields of the document, and can be no fields of it."""

_ROWS = (HistoryKind.DOCUMENT_PER_VERSION, HistoryKind.CURRENT_FLAG, HistoryKind.DELTAS)
"""Those in which each version is a document."""


def layout_of(type_: TypeDeclaration) -> LayoutFields | None:
    """The names; None where revstream keeps the versions."""
    collection, history = type_.directives.one("collection"), _history(type_)
    if collection is None or history in (None, HistoryKind.ARCHIVE):
        return None
    given = type_.directives.one("layout")
    names = {} if given is None else {name: given.text(name) for name in given.arguments}
    previous = names.pop("previous", None)
    if previous is None:
        separate = history is HistoryKind.SEPARATE
        previous = f"{collection.text('name')}.previous" if separate else "prev"
    said = {name: value for name, value in names.items() if value is not None}
    return LayoutFields(previous=previous, **said)


def check_layouts(declarations: Declarations) -> None:
    """Report what is wrong with each `@layout`, and what does not go with a layout."""
    for type_ in declarations.types.values():
        directive = type_.directives.one("layout")
        history = _history(type_)
        if directive is not None and not type_.is_entity:
            type_.place.error(
                directive.node,
                f"@layout: {type_.name} is embedded, expected an entity",
                "put it on the entity, or remove it",
            )
        elif directive is not None and history is HistoryKind.ARCHIVE:
            type_.place.error(
                directive.node,
                "@layout: history is ARCHIVE, expected another layout",
                "remove it, or set the layout: @collection(history: CURRENT_FLAG)",
            )
        elif type_.is_entity and history not in (None, HistoryKind.ARCHIVE):
            _check_company(type_, history)
            if directive is not None:
                _check_unused(type_, directive, history)
            _check_names(type_, directive, history)
            if history is HistoryKind.SEPARATE:
                _check_previous(type_, directive, declarations)


def _history(type_: TypeDeclaration) -> HistoryKind | None:
    """Return the kind of history; None if it is invalid or not declared on an entity."""
    collection = type_.directives.one("collection")
    text = None if collection is None else collection.text("history")
    return None if text is None else HistoryKind(text)


def _check_company(type_: TypeDeclaration, history: HistoryKind) -> None:
    """Report directives that do not go with the layout."""
    collection = type_.directives.one("collection")
    assert collection is not None
    if "version" in collection.arguments and collection.arguments["version"] is None:
        type_.place.error(
            collection.at("version"),
            f"version: null, expected the field of the version numbers, which "
            f"history: {history.value} requires",
            'name the field that has them: version: "v"',
        )
    if collection.text("storage") == "DELTA":
        type_.place.error(
            collection.at("storage"),
            "storage says how revstream's own archive keeps contents, and with history: "
            f"{history.value} it keeps none",
            "remove storage",
        )
    for field in type_.stored_fields:
        for name, why in _refused(history):
            directive = field.directives.one(name)
            if directive is not None:
                field.place.error(
                    directive.node,
                    f"@{name}: history is {history.value}, expected ARCHIVE: {why}",
                    f"remove @{name}",
                )
    for index in type_.directives.all("index"):
        if history in _ROWS and index.flag("unique"):
            type_.place.error(
                index.at("unique"),
                f"with history: {history.value} each version is a document, and versions of one "
                "document have equal values",
                "remove unique",
            )


def _refused(history: HistoryKind) -> Iterator[tuple[str, str]]:
    yield "fence", "an event is compared and applied in one write, but a layout needs several"
    yield "copy", "each update of a copy would be a new version"
    if history in _ROWS:
        yield (
            "unique",
            "each version is a document, and versions of one document have equal values",
        )


def _check_unused(type_: TypeDeclaration, directive: DirectiveUsage, history: HistoryKind) -> None:
    used = _NAMES[history]
    for name in directive.nodes:
        if name not in used:
            type_.place.error(
                directive.at(name),
                f"@layout({name}:): not used with history: {history.value}",
                f"remove it, or choose from {', '.join(used)}",
            )


def _check_names(
    type_: TypeDeclaration, directive: DirectiveUsage | None, history: HistoryKind
) -> None:
    collection = type_.directives.one("collection")
    names = layout_of(type_)
    assert collection is not None
    assert names is not None
    stored = {each.stored: f'the field "{each.name}"' for each in type_.stored_fields}
    stored |= {name: f"where revstream stores {what}" for name, what in KEPT_BESIDE.items()}
    stored["_id"] = "the id"
    version = collection.text("version")
    if version is not None:
        stored[version] = "the version's number"
    taken: dict[str, str] = {}
    for argument in _NAMES[history]:
        # A moment may be a field of the model too; a collection has other rules.
        if argument == "at" or (argument == "previous" and history is HistoryKind.SEPARATE):
            continue
        name = getattr(names, argument)
        others = stored if argument in _BESIDE_CONTENT[history] else {"_id": "the id"}
        other = taken.get(name) or others.get(name)
        problem = stored_name_problem(name)
        if problem is None and other is not None:
            problem = f"it is also {other}"
        if problem is not None:
            type_.place.error(
                directive.at(argument) if directive else collection.at("history"),
                f'the layout\'s name for {argument} is "{name}": {problem}',
                f'name the field that your programs use: @layout({argument}: "…")',
            )
        if argument in _BESIDE_CONTENT[history] or history is HistoryKind.EMBEDDED:
            taken[name] = f"the name for {argument}"


def _check_previous(
    type_: TypeDeclaration, directive: DirectiveUsage | None, declarations: Declarations
) -> None:
    """The collection of previous versions."""
    collection, names = type_.directives.one("collection"), layout_of(type_)
    assert collection is not None
    assert names is not None
    problem = name_problem(names.previous)
    for other in declarations.entities:
        applied = other.directives.one("collection")
        name = applied.text("name") if applied else None
        if name is None:
            continue
        if names.previous == name:
            problem = f'the collection "{name}" belongs to {other.name}'
        elif names.previous in [name + suffix for suffix in OWN_SUFFIXES]:
            problem = f'the collection "{names.previous}" is used by revstream for {name}'
        elif other.name < type_.name and _history(other) is HistoryKind.SEPARATE:
            found = layout_of(other)
            if found is not None and found.previous == names.previous:
                problem = f'the collection "{names.previous}" has the versions of {other.name}'
    if problem is not None:
        type_.place.error(
            directive.at("previous") if directive else collection.at("history"),
            problem,
            'name the collection of previous versions: @layout(previous: "…")',
        )
