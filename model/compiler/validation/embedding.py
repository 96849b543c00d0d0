"""Check how embedded types hang together: each is part of an entity, none must contain itself."""

from __future__ import annotations

from revstream.model.compiler.parsing.declarations import Declarations, FieldDeclaration
from revstream.model.compiler.parsing.diagnostics import Report
from revstream.model.naming import suggestion

__all__ = ["check_nesting"]


def check_nesting(declarations: Declarations, report: Report) -> None:
    """Report a model without entities, embedded types without use, and documents without an end."""
    for type_ in declarations.types.values():
        _check_endless(type_.name, declarations)
    if not any(True for _ in declarations.entities):
        _report_no_entity(declarations, report)
    else:
        _check_used(declarations)


def _report_no_entity(declarations: Declarations, report: Report) -> None:
    mend = 'add @collection(name: "…") to the types whose documents have a collection of their own'
    problem = "no type has a @collection, expected at least one"
    first = next(iter(declarations.types.values()), None)
    if first:
        first.place.error(first.node, problem, mend)
    else:
        report.add(
            report.start,
            problem,
            'declare one: type Product @collection(name: "products") { id: ID! name: String }',
        )


def _check_used(declarations: Declarations) -> None:
    used: set[str] = set()
    queue = [each.name for each in declarations.entities]
    while queue:
        name = queue.pop()
        if name in used:
            continue
        used.add(name)
        for field in declarations.types[name].fields.values():
            # A misspelt type is reported as such; the intended type does not count as unused.
            meant = (
                field.type_name
                if declarations.kind(field)
                else suggestion(field.type_name, declarations.types)
            )
            if meant in declarations.types:
                queue.append(meant)
        discriminator = declarations.types[name].discriminator
        queue += [each.type for each in discriminator.members] if discriminator else []
    for type_ in declarations.embeddeds:
        if type_.is_abstract and type_.discriminator is None:
            continue
        if type_.name not in used and type_.member_of is None:
            what = type_.spot.word if type_.is_abstract else "embedded type"
            type_.place.error(
                type_.node,
                f"{what}: not used, expected a field of an entity with it",
                "use it in a field or remove it"
                if type_.is_abstract
                else 'give it @collection(name: "…") if its documents have a collection of their '
                "own, otherwise use it in a field or remove it",
            )


def _check_endless(start: str, declarations: Declarations) -> None:
    """Report an embedded type that requires itself without end."""
    path: list[FieldDeclaration] = []
    seen = {start}

    def leads_back(name: str) -> bool:
        for field in declarations.types[name].stored_fields:
            held = declarations.embedded(field)
            if held is None or field.is_list or not field.required:
                continue
            path.append(field)
            if held.name == start:
                return True
            if held.name not in seen:
                seen.add(held.name)
                if leads_back(held.name):
                    return True
            path.pop()
        return False

    # Reported once, at the first type of the circle in the file.
    if leads_back(start):
        types = [start, *(each.type_name for each in path)]
        order = list(declarations.types)
        if start == min(types, key=order.index):
            path[0].place.error(
                path[0].node.type,
                f"each {start} would have to contain another one: {' in '.join(reversed(types))}",
                f'allow null: "{path[0].name}: {path[0].type_name}"',
            )
