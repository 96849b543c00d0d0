"""Comparison of an actual output or answer with the one on a page, where `…` matches anything."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["ANYTHING", "json_difference", "missing_line"]

ANYTHING = "…"


def missing_line(expected: str, output: str) -> str | None:
    """Return the first expected line that the output does not have, in their order, or None."""
    lines = iter([line.strip() for line in output.splitlines()])
    for line in expected.splitlines():
        wanted = line.strip()
        if wanted in ("", ANYTHING):
            continue
        pattern = _pattern(wanted)
        if not any(pattern.fullmatch(each) for each in lines):
            return wanted
    return None


def json_difference(expected: Any, actual: Any, path: str = "answer") -> str | None:
    """Return where two JSON values differ, or None."""
    if isinstance(expected, str):
        if expected == ANYTHING:
            return None
        if isinstance(actual, str) and _pattern(expected).fullmatch(actual):
            return None
    elif isinstance(expected, dict) and isinstance(actual, dict):
        return _object_difference(expected, actual, path)
    elif isinstance(expected, list) and isinstance(actual, list):
        return _list_difference(expected, actual, path)
    elif type(expected) is type(actual) and expected == actual:
        return None
    return f"{path}: {_shown(actual)}, expected {_shown(expected)}"


def _object_difference(expected: dict[str, Any], actual: dict[str, Any], path: str) -> str | None:
    more = ANYTHING in expected
    for name, value in expected.items():
        if name == ANYTHING:
            continue
        if name not in actual:
            return f"{path}.{name}: missing, expected {_shown(value)}"
        difference = json_difference(value, actual[name], f"{path}.{name}")
        if difference is not None:
            return difference
    for name in actual.keys() - expected.keys():
        if not more:
            return f"{path}.{name}: {_shown(actual[name])}, expected nothing"
    return None


def _list_difference(expected: list[Any], actual: list[Any], path: str) -> str | None:
    more = bool(expected) and expected[-1] == ANYTHING
    wanted = expected[:-1] if more else expected
    if len(actual) < len(wanted) or (len(actual) > len(wanted) and not more):
        return f"{path}: {len(actual)} items, expected {len(wanted)}{' or more' if more else ''}"
    for index, (want, have) in enumerate(zip(wanted, actual, strict=False)):
        difference = json_difference(want, have, f"{path}[{index}]")
        if difference is not None:
            return difference
    return None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split(ANYTHING))), re.S)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
