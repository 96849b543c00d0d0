"""Texts of the product's surface: SDL, help and error codes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from click.testing import CliRunner
from graphql import TypeSystemDefinitionNode, parse

from revstream.gql.cli.main import cli
from revstream.gql.http.media_types import JSON
from revstream.gql.observability.error_response import answer
from revstream.gql.observability.error_table import TABLE
from revstream.gql.schema import build_schema, print_sdl, select_naming
from revstream.model.compiler.loader import read_model

__all__ = ["error_codes", "help_pages", "sdl", "sdl_beside"]


def sdl(model: Path, *, relay: bool = False) -> str:
    """Return the SDL of the API of a model."""
    read = read_model(model.read_text(encoding="utf-8"))
    return print_sdl(build_schema(read, naming=select_naming(relay=relay))) + "\n"


def sdl_beside(base: str, other: str) -> str:
    """Return the difference of an SDL to a base: the names that are equal, and the rest in full."""
    known = dict(_definitions(base))
    equal, rest = [], []
    for name, text in _definitions(other):
        if known.get(name) == text:
            equal.append(f"# equal: {name}")
        else:
            rest.append(text)
    return "\n".join(equal) + "\n\n" + "\n\n".join(rest) + "\n"


def _definitions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each definition of an SDL with its kind and name."""
    for node in parse(text).definitions:
        assert isinstance(node, TypeSystemDefinitionNode)
        assert node.loc is not None
        name = getattr(node, "name", None)
        yield f"{node.kind} {name.value if name else ''}", text[node.loc.start : node.loc.end]


def help_pages() -> str:
    """Return `--help` of the command and of all its sub-commands, 100 columns wide."""
    pages = {(): _help(())}
    newest: list[tuple[str, ...]] = [()]
    while newest:
        newest = [(*each, name) for each in newest for name in _commands(pages[each])]
        pages |= {each: _help(each) for each in newest}
    return "\n".join(
        f"$ {' '.join(('revstream', *names, '--help'))}\n\n{pages[names]}"
        for names in sorted(pages)
    )


def _help(names: tuple[str, ...]) -> str:
    # In a terminal, click leaves two columns free.
    done = CliRunner().invoke(cli, [*names, "--help"], prog_name="revstream", terminal_width=98)
    assert done.exit_code == 0, done.output
    return done.output


def _commands(page: str) -> list[str]:
    """Return the names of the sub-commands that a help page lists."""
    _, _, listed = page.partition("\nCommands:\n")
    return re.findall(r"^  (\S+)", listed, re.M)


def error_codes() -> str:
    """Return class, code, log level, masking and HTTP status of each error.

    The status is the one of a request that is refused before it is executed.
    """
    rows = []
    for error, rule in TABLE.items():
        body = {"errors": [{"message": "", "extensions": {"code": rule.code}}]}
        level = logging.getLevelName(rule.level)
        masked = "masked" if rule.masked else "shown"
        rows.append((error.__name__, rule.code, level, masked, str(answer(body, JSON).status_code)))
    return _table(("class", "code", "level", "message", "status"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(" | ".join(each) + "\n" for each in (head, *rows))
