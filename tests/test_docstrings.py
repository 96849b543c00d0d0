"""Names of attributes in docstrings and comments exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("gql", "resolvers", "streams", "model")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]

# Types of the API that docstrings name by their fields.
API = {"Mutation", "Product", "Query", "Subscription"}


def test_an_attribute_that_the_text_of_a_module_names_is_in_the_class() -> None:
    """A method that is renamed is renamed where other modules refer to it, too."""
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    names, bases = dict[str, set[str]](), dict[str, set[str]]()
    for text in texts.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                names.setdefault(node.name, set()).update(_names(node))
                named = re.findall(r"\w+", " ".join(map(ast.unparse, node.bases)))
                bases.setdefault(node.name, set()).update(named)

    def attributes(name: str) -> set[str]:
        above = bases.get(name, set()) - {name}
        return names.get(name, set()).union(*map(attributes, above))

    found, stale = 0, []
    for path, text in texts.items():
        for name, attribute in re.findall(r"`(_?[A-Z]\w*)\.(\w+)`", text):
            found += 1
            # A class of another library is imported where it is named.
            ours = name in names or not re.search(rf"^(from|import) .*\b{name}\b", text, re.M)
            if name not in API and ours and attribute not in attributes(name):
                stale.append(f"{path.relative_to(ROOT)}: {name}.{attribute}")
    assert found > 20
    assert stale == []


def _names(node: ast.ClassDef) -> set[str]:
    """Return the names that a class defines or uses, without those in its texts."""
    return {
        name
        for each in ast.walk(node)
        for name in (getattr(each, "name", None), getattr(each, "attr", None), _id(each))
        if isinstance(name, str)
    }


def _id(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) else None
