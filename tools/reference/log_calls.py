"""Log lines whose text is fixed in the source: level, text and names of the facts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["LogCall", "log_calls"]

ROOT = Path(__file__).parents[2]
_PACKAGES = ("gql", "resolvers", "streams", "model")
_LOGGERS = {"log", "logger", "_log", "_logger"}
_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
# Default of LogThrottle.
_THROTTLED = "WARNING"

Function = ast.FunctionDef | ast.AsyncFunctionDef


class LogCall(NamedTuple):
    """A log line; the level is `(computed)` if the source does not name it."""

    level: str
    text: str
    facts: frozenset[str]


def log_calls() -> Iterator[LogCall]:
    """Yield each line that the packages log."""
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield from _calls(ast.parse(path.read_text(encoding="utf-8")))


def _calls(module: ast.Module) -> Iterator[LogCall]:
    functions = [each for each in ast.walk(module) if isinstance(each, Function)]
    calls = [each for each in ast.walk(module) if isinstance(each, ast.Call)]
    noted = _noted(module)
    for call in calls:
        for level, message in _logged(call):
            owner = next((each for each in reversed(functions) if call in ast.walk(each)), module)
            for text, extra in _branches(message, _extra(call)):
                facts = frozenset(_keys(extra, owner)) if extra is not None else frozenset()
                yield LogCall(level, text, facts | noted.get(id(call), frozenset()))
    # A function whose callers in the module pass the event as a string.
    for function in functions:
        names = [each.arg for each in function.args.args if each.arg != "self"]
        for call in (each for each in ast.walk(function) if isinstance(each, ast.Call)):
            for level, message in _logged(call):
                if not (isinstance(message, ast.Name) and message.id in names):
                    continue
                index = names.index(message.id)
                for other in calls:
                    if _name(other.func) == function.name and len(other.args) > index:
                        extra = _extra(call)
                        facts = frozenset() if extra is None else frozenset(_keys(extra, function))
                        for text, _ in _branches(other.args[index], None):
                            yield LogCall(level, text, facts)


def _noted(module: ast.Module) -> dict[int, frozenset[str]]:
    """Return the facts of each throttle, by its call: those that its `note` is called with."""
    facts: dict[str, set[str]] = {}
    for each in ast.walk(module):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            if each.func.attr != "note":
                continue
            names = facts.setdefault(_name(each.func.value), set())
            for keyword in each.keywords:
                names |= {keyword.arg} if keyword.arg else set(_keys(keyword.value, module))
    found = {}
    for each in ast.walk(module):
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call):
            known = facts.get(_name(each.targets[0]))
            if known is not None:
                found[id(each.value)] = frozenset(known)
    return found


def _extra(call: ast.Call) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == "extra"), None)


def _branches(message: ast.expr, extra: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the texts of a message, each with the facts that it is logged with."""
    match message, extra:
        case ast.Constant(value=str(text)), _:
            yield text, extra
        case ast.JoinedStr(), _:
            yield ast.unparse(message), extra
        case ast.IfExp(test=test), ast.IfExp(test=same) if ast.dump(test) == ast.dump(same):
            yield from _branches(message.body, extra.body)
            yield from _branches(message.orelse, extra.orelse)
        case ast.IfExp(), _:
            yield from _branches(message.body, extra)
            yield from _branches(message.orelse, extra)


def _keys(value: ast.AST, owner: ast.AST) -> Iterator[str]:
    match value:
        case ast.Dict(keys=keys, values=values):
            for key, inner in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value)
                else:
                    yield from _keys(inner, owner)
        case ast.IfExp(body=body, orelse=otherwise):
            yield from _keys(body, owner)
            yield from _keys(otherwise, owner)
        case ast.BinOp(left=left, right=right):
            yield from _keys(left, owner)
            yield from _keys(right, owner)
        case ast.Name(id=name):
            for each in ast.walk(owner):
                if isinstance(each, ast.Assign | ast.AnnAssign):
                    target = each.targets[0] if isinstance(each, ast.Assign) else each.target
                    if isinstance(target, ast.Name) and target.id == name and each.value:
                        yield from _keys(each.value, ast.Module([], []))
                    if isinstance(target, ast.Subscript) and _name(target.value) == name:
                        assert isinstance(target.slice, ast.Constant)
                        yield str(target.slice.value)


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
        yield (_level(given[0]) if given else _THROTTLED), node.args[1]


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
