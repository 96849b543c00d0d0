"""Read `@sink(url, operations)`: where changes are delivered."""

from __future__ import annotations

from urllib.parse import urlsplit

from revstream.model.compiler.parsing.declarations import Declarations, TypeDeclaration
from revstream.model.compiler.parsing.directive_definitions import ENUMS
from revstream.model.compiler.parsing.directives import DirectiveUsage
from revstream.model.definition import SinkDefinition

__all__ = ["check_sinks", "sinks_of"]


def sinks_of(type_: TypeDeclaration) -> tuple[SinkDefinition, ...]:
    """The sinks of an entity that has no mistakes, in source order."""
    return tuple(
        SinkDefinition(url=each.text("url") or "", operations=each.texts("operations"))
        for each in type_.directives.all("sink")
    )


def check_sinks(declarations: Declarations) -> None:
    """Report what is wrong with each sink."""
    for type_ in declarations.types.values():
        urls: set[str] = set()
        for directive in type_.directives.all("sink"):
            if not type_.is_entity:
                type_.place.error(
                    directive.node,
                    f"@sink: {type_.name} is embedded, expected an entity",
                    "put it on the entity",
                )
                continue
            url = directive.text("url")
            if url is not None:
                _check_url(type_, directive, url)
                if url in urls:
                    type_.place.error(
                        directive.at("url"),
                        f'two sinks deliver to "{url}"',
                        "merge them, with the operations of both",
                    )
                urls.add(url)
            _check_operations(type_, directive)


def _check_url(type_: TypeDeclaration, directive: DirectiveUsage, url: str) -> None:
    problem = _url_problem(url)
    if problem:
        type_.place.error(
            directive.at("url"),
            f'@sink(url: "{url}"): {problem}',
            'write an http or https URL, for example "https://example.org/changes"',
        )


def _url_problem(url: str) -> str | None:
    if url != url.strip() or any(each.isspace() or not each.isprintable() for each in url):
        return "a URL has no spaces"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"{str(error)[:1].lower()}{str(error)[1:]}"
    if parts.scheme not in ("http", "https"):
        return f'its scheme is "{parts.scheme}"' if parts.scheme else "it has no scheme"
    return None if parts.hostname else "it has no host"


def _check_operations(type_: TypeDeclaration, directive: DirectiveUsage) -> None:
    operations = directive.texts("operations")
    if operations is None:
        return
    if not operations:
        type_.place.error(
            directive.at("operations"),
            "@sink(operations: []): empty, expected at least one",
            f"remove it for all operations, or choose from {', '.join(ENUMS['Operation'])}",
        )
    for name in sorted({each for each in operations if operations.count(each) > 1}):
        type_.place.error(directive.at("operations"), f"@sink names {name} twice", "name it once")
