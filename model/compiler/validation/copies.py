"""Check `@copy(of: "reference.field")`: what is copied, whether it fits, and circles."""

from __future__ import annotations

from revstream.model.compiler.parsing.declarations import (
    Declarations,
    FieldDeclaration,
    Kind,
    TypeDeclaration,
)
from revstream.model.compiler.parsing.directives import DirectiveUsage
from revstream.model.compiler.validation.references import FieldKey, named_ids
from revstream.model.definition import Scalar
from revstream.model.naming import did_you_mean

__all__ = ["check_copies", "copied_field"]


def copied_field(
    type_: TypeDeclaration, directive: DirectiveUsage, declarations: Declarations
) -> tuple[TypeDeclaration, FieldDeclaration] | None:
    """The entity and the field of it that are copied; None where the path leads to none."""
    reference, _, source = (directive.text("of") or "").partition(".")
    through = type_.fields.get(reference)
    is_one = through and through.is_reference and not through.is_list
    target = declarations.entity(through) if through and is_one else None
    field = target.fields.get(source) if target else None
    return (target, field) if target and field else None


def check_copies(declarations: Declarations) -> None:
    """Report what is wrong with each copy, and every circle of them once."""
    for type_, field in declarations.fields:
        directive = field.directives.one("copy")
        if directive and field.is_stored and field.name != "id":
            _check_copy(type_, field, directive, declarations)
    _check_circles(declarations)


def _check_copy(
    type_: TypeDeclaration,
    field: FieldDeclaration,
    directive: DirectiveUsage,
    declarations: Declarations,
) -> None:
    if field.required:
        field.place.error(
            field.node.type,
            f"@copy: {field.type_text}, expected a type that may be null, since "
            "the copy follows the write",
            f'write "{field.type_text.removesuffix("!")}"',
        )
    if _within_itself(type_, declarations):
        field.place.error(
            directive.node,
            f"documents of {type_.name} may contain one another, but copies are written to a "
            "bounded depth",
            "remove @copy, or move the field to a type that does not contain itself",
        )
    if _within_union(type_, declarations):
        field.place.error(
            directive.node,
            f"@copy: {type_.name} is part of a union, expected a type that is not",
            "remove @copy, and read the field through the reference",
        )
    path = directive.text("of")
    if path is None:
        return
    found = copied_field(type_, directive, declarations)
    if found is None:
        _report_unknown(type_, field, directive, path, declarations)
        return
    target, source = found
    text = f'@copy(of: "{path}")'
    if not source.is_stored:
        field.place.error(
            directive.at("of"),
            f'{text}: "{source.name}" of {target.name} is a reference, expected a stored field',
            "name a stored field",
        )
    elif source.name == "id":
        field.place.error(
            directive.at("of"),
            f"{text}: the id of {target.name} is already in the field of the reference",
            "remove the field",
        )
    elif declarations.kind(field) is not None and declarations.kind(source) is not None:
        _check_same_type(type_, field, directive, (target, source), declarations)


def _within_itself(type_: TypeDeclaration, declarations: Declarations) -> bool:
    """Return whether an embedded type contains itself, directly or through others."""
    return _contains(type_, type_, declarations)


def _contains(outer: TypeDeclaration, inner: TypeDeclaration, declarations: Declarations) -> bool:
    """Return whether documents of one type may have documents of another one inside."""
    seen: set[str] = set()
    queue = [outer]
    while queue:
        for each in queue.pop().stored_fields:
            held = declarations.embedded(each)
            if held is inner:
                return True
            if held is not None and held.name not in seen:
                seen.add(held.name)
                queue.append(held)
    return False


def _within_union(type_: TypeDeclaration, declarations: Declarations) -> bool:
    """Return whether a union has documents of an embedded type, in members or inside of them."""
    if type_.is_entity:
        return False
    members = [each for each in declarations.types.values() if each.member_of is not None]
    return any(each is type_ or _contains(each, type_, declarations) for each in members)


def _report_unknown(
    type_: TypeDeclaration,
    field: FieldDeclaration,
    directive: DirectiveUsage,
    path: str,
    declarations: Declarations,
) -> None:
    text = f'@copy(of: "{path}")'
    reference, _, source = path.partition(".")
    references = [each.name for each in type_.references]
    through = type_.fields.get(reference)
    if not source or "." in source:
        by = next((each.name for each in type_.references if _goes_by(each, reference)), None)
        example = f"{by or (references or ['supplier'])[0]}.name"
        field.place.error(
            directive.at("of"),
            f"{text}: expected the path of a reference and a field",
            f'write it with one dot, for example "{example}"',
        )
    elif through is None or not through.is_reference or through.is_list:
        by = next((each.name for each in type_.references if _goes_by(each, reference)), None)
        known = (
            f"name a reference of {type_.name}: {', '.join(references)}"
            if references
            else (f"add a field to {type_.name} with @reference(by:)")
        )
        field.place.error(
            directive.at("of"),
            f'{text}: "{reference}" is not a @reference of {type_.name}'
            + (" to one document" if through and through.is_list else ""),
            f'did you mean "{by}"?' if by else did_you_mean(reference, references, known),
        )
    else:
        target = declarations.entity(through)
        if target:
            fields = [each.name for each in target.stored_fields]
            field.place.error(
                directive.at("of"),
                f'{text}: {target.name} has no field "{source}"',
                did_you_mean(source, fields, f"it has {', '.join(fields)}"),
            )


def _goes_by(reference: FieldDeclaration, name: str) -> bool:
    directive = reference.directives.one("reference")
    return directive is not None and directive.text("by") == name


def _check_same_type(
    type_: TypeDeclaration,
    field: FieldDeclaration,
    directive: DirectiveUsage,
    found: tuple[TypeDeclaration, FieldDeclaration],
    declarations: Declarations,
) -> None:
    target, source = found
    ids = named_ids(declarations)
    here = _stored_as(type_, field, ids, declarations)
    there = _stored_as(target, source, ids, declarations)
    alike = _shape(field) == _shape(source)
    if alike and here is there:
        return
    keys = {(type_.name, field.name), (target.name, source.name)}
    if here is there and field.is_list == source.is_list and keys & ids.keys():
        # One may be declared ID and the other by the scalar it is stored as.
        return
    wanted = source.type_text.removesuffix("!")
    problem = f'it is {field.type_text}, and "{source.name}" of {target.name} is {source.type_text}'
    if alike and isinstance(here, Scalar) and isinstance(there, Scalar):
        wanted = there.value
        problem = (
            f'"{source.name}" of {target.name} is stored as {there.value}, '
            f"and this field as {here.value}"
        )
    field.place.error(directive.at("of"), problem, f'write "{field.name}: {wanted}"')


def _stored_as(
    type_: TypeDeclaration,
    field: FieldDeclaration,
    ids: dict[FieldKey, Scalar],
    declarations: Declarations,
) -> Kind | None:
    kind = declarations.kind(field)
    if not isinstance(kind, Scalar):
        return kind
    return ids.get((type_.name, field.name), Scalar.STRING if kind is Scalar.ID else kind)


def _shape(field: FieldDeclaration) -> tuple[str, bool, bool]:
    return field.type_name, field.is_list, field.item_required


def _check_circles(declarations: Declarations) -> None:
    source_of: dict[FieldKey, FieldKey] = {}
    written: dict[FieldKey, tuple[FieldDeclaration, DirectiveUsage]] = {}
    for type_, field in declarations.fields:
        directive = field.directives.one("copy")
        found = copied_field(type_, directive, declarations) if directive else None
        if directive and found:
            source_of[type_.name, field.name] = (found[0].name, found[1].name)
            written[type_.name, field.name] = (field, directive)
    reported: set[FieldKey] = set()
    for start, (field, directive) in written.items():
        path = [start]
        while path[-1] in source_of and source_of[path[-1]] not in path:
            path.append(source_of[path[-1]])
        # A path that leads into a circle is no part of it: the circle is reported where it closes.
        if source_of.get(path[-1]) == start and reported.isdisjoint(path):
            reported.update(path)
            circle = " of ".join(".".join(each) for each in [*path, start])
            field.place.error(
                directive.at("of"),
                f"it is a copy of itself: {circle}",
                "remove @copy from one of them",
            )
