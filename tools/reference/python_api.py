"""The public interface for Python, for python.md: signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from revstream import listeners
from tools.reference.markdown import code, linked, table

__all__ = ["PARTS"]


def _class(name: str) -> str:
    kind = getattr(listeners, name)
    summary, attributes = _docstring(kind)
    parts = [linked(summary)]
    names = dict.fromkeys(inspect.get_annotations(kind))
    if dataclasses.is_dataclass(kind):
        names = dict.fromkeys(each.name for each in dataclasses.fields(kind))
    if names:
        rows = [_attribute(kind, each, attributes.get(each, "")) for each in names]
        parts.append(table(("attribute", "type", "default", "meaning"), rows))
    methods = [
        (each, value)
        for each, value in vars(kind).items()
        if inspect.isfunction(value) and not each.startswith("_")
    ]
    for each, method in methods:
        text, _ = _docstring(method)
        kept = "async " if inspect.iscoroutinefunction(method) else ""
        must = " It must be defined." if getattr(method, "__isabstractmethod__", False) else ""
        parts.append(
            f"#### {name}.{each}\n\n```python\n{kept}def {each}{_signature(method)}\n```\n\n"
            + linked(text)
            + must
        )
    return "\n\n".join(parts)


def _docstring(documented: Any) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring before its sections, and what it says of attributes."""
    text = inspect.getdoc(documented) or ""
    text, _, section = text.partition("\nAttributes:\n")
    attributes = {
        found[1]: " ".join(found[2].split())
        for found in re.finditer(r"^    (\w+): (.*(?:\n      .*)*)", section, re.M)
    }
    return "\n\n".join(" ".join(each.split()) for each in text.strip().split("\n\n")), attributes


def _attribute(kind: Any, name: str, says: str) -> tuple[str, str, str, str]:
    hint = inspect.get_annotations(kind)[name]
    default: Any = dataclasses.MISSING
    if dataclasses.is_dataclass(kind):
        default = next(each.default for each in dataclasses.fields(kind) if each.name == name)
    elif name in vars(kind):
        default = vars(kind)[name]
    shown = "" if default is dataclasses.MISSING else code(repr(default))
    return code(name), code(hint), shown, linked(says)


def _signature(method: Any) -> str:
    return str(inspect.signature(method)).replace("'", "")


PARTS: dict[str, Callable[[], str]] = {
    f"python {name}": partial(_class, name) for name in listeners.__all__
}
