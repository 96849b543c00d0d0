"""Validation of `@access`: roles that may read, write, propose, comment and publish."""

from __future__ import annotations

from revstream.model.compiler.parsing.declarations import Declarations, TypeDeclaration
from revstream.model.compiler.parsing.diagnostics import DeclarationLocation
from revstream.model.compiler.parsing.directives import Directives, DirectiveUsage
from revstream.model.compiler.validation.row_rules import check_rows
from revstream.model.definition import Access

__all__ = ["access_of", "check_access"]

_OF_DRAFTS = ("propose", "comment", "publish", "publishOwn")
_ROLES = ("read", "write", "propose", "comment", "publish")


def access_of(directives: Directives) -> Access | None:
    """Return the content of `@access`; None without the directive."""
    directive = directives.one("access")
    if directive is None:
        return None
    return Access(
        read=directive.texts("read"),
        write=directive.texts("write"),
        rows=directive.text("rows"),
        propose=directive.texts("propose"),
        comment=directive.texts("comment"),
        publish=directive.texts("publish"),
        # Broken where it is no Boolean; that is reported.
        publish_own=directive.arguments.get("publishOwn") is not False,
    )


def check_access(declarations: Declarations) -> None:
    """Report what is wrong with each `@access`."""
    for type_ in declarations.types.values():
        on_type = type_.directives.one("access")
        if on_type:
            _check_roles(on_type, type_.place)
            if not type_.is_entity:
                _check_no_drafts(on_type, type_.place, f"{type_.name} is embedded")
            _check_type_rows(type_, on_type, declarations)
        for field in type_.fields.values():
            on_field = field.directives.one("access")
            if on_field is None:
                continue
            _check_roles(on_field, field.place)
            _check_no_drafts(on_field, field.place, f"{field.name} is a field")
            if type_.is_entity and field.name == "id":
                field.place.error(
                    on_field.node,
                    "the id identifies the document and cannot be restricted alone",
                    f"put @access on {type_.name}",
                )
            if "rows" in on_field.nodes:
                field.place.error(
                    on_field.at("rows"),
                    "rows: on a field, expected on a type",
                    f"move it to {type_.name}",
                )
            if not field.is_stored and "write" in on_field.nodes:
                reference = field.directives.one("reference")
                by = reference.text("by") if reference else None
                field.place.error(
                    on_field.at("write"),
                    "write: the field is a reference, expected a stored field",
                    f'put it on "{by}"' if by else "remove write",
                )


def _check_type_rows(
    type_: TypeDeclaration, directive: DirectiveUsage, declarations: Declarations
) -> None:
    if "rows" in directive.nodes and not type_.is_entity:
        type_.place.error(
            directive.at("rows"),
            f"rows: {type_.name} is embedded, expected an entity",
            "put it on the entity",
        )
        return
    rows = directive.text("rows")
    if rows is not None:
        check_rows(type_, rows, directive.at("rows"), declarations)


def _check_no_drafts(directive: DirectiveUsage, place: DeclarationLocation, what: str) -> None:
    for argument in _OF_DRAFTS:
        if argument in directive.nodes:
            place.error(
                directive.at(argument),
                f"{argument}: {what}, expected an entity",
                "put it on the entity",
            )


def _check_roles(directive: DirectiveUsage, place: DeclarationLocation) -> None:
    if not directive.nodes:
        place.error(
            directive.node,
            "@access: no arguments, expected at least one",
            'name roles, for example @access(read: ["staff"], write: ["admin"]), or remove it',
        )
    for argument in _ROLES:
        roles = directive.texts(argument)
        if roles is None:
            continue
        node = directive.at(argument)
        if not roles:
            place.error(
                node,
                f"@access({argument}: []): no roles, expected at least one",
                f"name roles, or remove {argument} to allow everyone",
            )
        if any(not each.strip() for each in roles):
            place.error(
                node, f"@access({argument}:) has a role without a name", "name it or remove it"
            )
        for role in sorted({each for each in roles if each.strip() and roles.count(each) > 1}):
            place.error(node, f'@access({argument}:) names "{role}" twice', "name it once")
