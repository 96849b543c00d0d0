"""Texts of the product's surface: SDL, help, settings, metrics, error codes and log events."""

from __future__ import annotations

import ast
import dataclasses
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_type_hints

from click.testing import CliRunner
from graphql import TypeSystemDefinitionNode, parse

from revstream.gql.cli.main import cli
from revstream.gql.http.media_types import JSON
from revstream.gql.observability.error_response import answer
from revstream.gql.observability.error_table import TABLE
from revstream.gql.observability.metric_definitions import METRICS
from revstream.gql.runtime.configuration.settings import PREFIX, Settings
from revstream.gql.schema import build_schema, print_sdl, select_naming
from revstream.model.compiler.loader import read_model
from tests.support.gateway import ROOT

__all__ = ["error_codes", "help_pages", "log_events", "metrics", "sdl", "sdl_beside", "settings"]

_PACKAGES = ("gql", "resolvers", "streams", "model")
_LOGGERS = {"log", "logger", "_log", "_logger"}
_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")


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


def settings() -> str:
    """Return name, variable, type, default and help of each setting."""
    hints = get_type_hints(Settings)
    return _table(
        ("name", "variable", "type", "default", "help"),
        (
            (
                each.name,
                PREFIX + each.name.upper(),
                hints[each.name].__name__
                if isinstance(hints[each.name], type)
                else re.sub(r"\b\w+\.", "", str(hints[each.name])),
                str(each.default),
                each.metadata["help"],
            )
            for each in dataclasses.fields(Settings)
        ),
    )


def metrics() -> str:
    """Return name, type, labels and help of each metric."""
    rows = ((each.name, each.kind, ", ".join(each.labels), each.says) for each in METRICS)
    return _table(("name", "type", "labels", "help"), rows)


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


def log_events() -> str:
    """Return the level and the text of each log line whose text is fixed in the source.

    Names no module: an event that moves stays the same.
    """
    found: set[tuple[str, str]] = set()
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            found |= set(_events(ast.parse(path.read_text(encoding="utf-8"))))
    return _table(("level", "event"), sorted(found))


def _events(module: ast.Module) -> Iterator[tuple[str, str]]:
    functions = [
        each
        for each in ast.walk(module)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    calls = [each for each in ast.walk(module) if isinstance(each, ast.Call)]
    for call in calls:
        for level, message in _logged(call):
            for text in _texts(message):
                yield level, text
    # A function whose callers in the module pass the event as a string.
    for function in functions:
        names = [each.arg for each in function.args.args if each.arg != "self"]
        for call in ast.walk(function):
            for level, message in _logged(call):
                if not (isinstance(message, ast.Name) and message.id in names):
                    continue
                index = names.index(message.id)
                for other in calls:
                    if _name(other.func) == function.name and len(other.args) > index:
                        for text in _texts(other.args[index]):
                            yield level, text


def _logged(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the level and message of each call of a logger, or of a helper that takes a logger."""
    if not isinstance(node, ast.Call) or not node.args:
        return
    if isinstance(node.func, ast.Attribute) and _is_logger(node.func.value):
        method = node.func.attr
        if method in _LEVELS:
            yield ("ERROR" if method == "exception" else method.upper()), node.args[0]
        elif method == "log":
            yield _level(node.args[0]), node.args[1]
    elif len(node.args) > 1 and _is_logger(node.args[0]):
        given = [each.value for each in node.keywords if each.arg == "level"]
        yield (_level(given[0]) if given else "(default)"), node.args[1]


def _is_logger(node: ast.expr) -> bool:
    return _name(node) in _LOGGERS or (
        isinstance(node, ast.Call) and _name(node.func) == "getLogger"
    )


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _level(node: ast.expr) -> str:
    name = _name(node)
    return name if name.isupper() else "(computed)"


def _texts(message: ast.expr) -> Iterator[str]:
    match message:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr():
            yield ast.unparse(message)
        case ast.IfExp(body=body, orelse=otherwise):
            yield from _texts(body)
            yield from _texts(otherwise)
