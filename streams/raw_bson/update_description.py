"""Apply MongoDB's updateDescription to the previous state, where the server has no post-image.

Guarantees: exact, or `Ambiguous`; never a guess. A dotted path in an updateDescription may mean an
array index, a field named `5`, or a field with dots in its name. The previous state decides, since
the server describes a change below an existing parent. From MongoDB 6.1 on, `disambiguatedPaths`
has the steps of each path in which a name contains a dot or looks like an index; where it is
present, all other paths are split at their dots.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Ambiguous", "apply_delta", "apply_oplog_diff"]


# Neither "05" nor digits of other scripts: those are names.
_INDEX = re.compile("0|[1-9][0-9]*")
_DESCRIPTION = {"updatedFields", "removedFields", "truncatedArrays", "disambiguatedPaths"}


class Ambiguous(Exception):
    """The path has several possible readings, or none, in the previous state."""


def apply_delta(before: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document after an update.

    Args:
        before: The document before, decoded; not modified.
        update: `updateDescription`, decoded: updatedFields, removedFields, truncatedArrays,
            disambiguatedPaths.

    Raises:
        Ambiguous: A path has no single reading.
    """
    if unknown := update.keys() - _DESCRIPTION:
        raise Ambiguous(f"update description: unknown parts {', '.join(sorted(unknown))}")
    after = copy.deepcopy(dict(before))
    known = update.get("disambiguatedPaths")
    # The server truncates before it sets: an array cut to 2 that then gets an item 2 is described
    # by both.
    for each in update.get("truncatedArrays") or ():
        parent, last = _locate(after, each["field"], known, exists=True)
        array = _get(parent, last)
        if not isinstance(array, list):
            raise Ambiguous(f"{each['field']!r}: truncated, expected an array")
        del array[each["newSize"] :]
    for path in update.get("removedFields") or ():
        parent, last = _locate(after, path, known, exists=True)
        if not isinstance(parent, dict) or last not in parent:
            raise Ambiguous(f"{path!r}: removed, expected an existing field")
        del parent[str(last)]
    for path, value in (update.get("updatedFields") or {}).items():
        parent, last = _locate(after, path, known, exists=False)
        if isinstance(parent, dict):
            parent[str(last)] = value
        else:
            index = int(last)
            # $set beyond the end pads with null.
            parent.extend([None] * (index + 1 - len(parent)))
            parent[index] = value
    return after


Container = dict[str, Any] | list[Any]


def _locate(
    document: dict[str, Any],
    path: str,
    known: Mapping[str, Sequence[Any]] | None,
    *,
    exists: bool,
) -> tuple[Container, str | int]:
    """Return the existing parent of a path, and the last step below it.

    Args:
        known: Steps of paths with several readings; None where the server does not send them.
    """
    if known is not None:
        steps = known.get(path) or path.split(".")
        node: Any = document
        for step in steps[:-1]:
            node = _get(node, step, listed=path in known)
        last = steps[-1]
        if isinstance(node, dict) and isinstance(last, str):
            return node, last
        if isinstance(node, list) and _is_index(last, listed=path in known):
            return node, int(last)
        raise Ambiguous(f"{path!r}: expected an object or array on the way")
    found = list(_readings(document, path.split(".")))
    there = [(parent, last) for parent, last in found if _has(parent, last)]
    # A path that exists in exactly one reading means that one; the same name added beside it would
    # be a second reading.
    candidates = there if exists else found
    if len(candidates) != 1:
        raise Ambiguous(f"{path!r}: {len(candidates)} meanings, expected 1")
    return candidates[0]


def _readings(node: Container, names: list[str]) -> Iterator[tuple[Container, str | int]]:
    """Yield each (existing parent, last step) that the dotted names can mean, longest field names
    last.
    """
    if isinstance(node, list):
        head, rest = names[0], names[1:]
        if not _INDEX.fullmatch(head):
            return
        index = int(head)
        if not rest:
            yield node, index
        elif index < len(node) and isinstance(node[index], dict | list):
            yield from _readings(node[index], rest)
        return
    for length in range(1, len(names)):
        child = node.get(".".join(names[:length]))
        if isinstance(child, dict | list):
            yield from _readings(child, names[length:])
    yield node, ".".join(names)


def _has(parent: Container, last: str | int) -> bool:
    if isinstance(parent, dict):
        return last in parent
    return int(last) < len(parent)


def _get(parent: Any, step: str | int, *, listed: bool = False) -> Any:
    if isinstance(parent, dict) and step in parent:
        return parent[str(step)]
    if isinstance(parent, list) and _is_index(step, listed=listed) and int(step) < len(parent):
        return parent[int(step)]
    raise Ambiguous(f"step {step!r} of a path: no such field or item")


def _is_index(step: str | int, *, listed: bool) -> bool:
    """Return whether a step is an array index; where steps are listed, indexes are numbers."""
    return isinstance(step, int) or (not listed and _INDEX.fullmatch(step) is not None)


def apply_oplog_diff(before: Mapping[str, Any], diff: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document after an oplog entry of the form `{$v: 2, diff}`.

    Source: mongo/src/mongo/db/update/document_diff_serialization.h: `d` deletes, `u` updates, `i`
    inserts, `s<name>` descends; in arrays (`a: true`) `l` is the new length, `u<index>` sets an
    item,
    `s<index>` descends.

    Raises:
        Ambiguous: The diff does not fit the previous state.
    """
    after = dict(before)
    for section, changes in diff.items():
        if section == "d":
            for name in changes:
                after.pop(name, None)
        elif section == "u":
            after.update(changes)
        elif section == "i":
            for name, value in changes.items():
                # A field that changes its place in the order is described as inserted again.
                after.pop(name, None)
                after[name] = value
        elif section.startswith("s"):
            name = section[1:]
            after[name] = _below(after.get(name), changes, name)
        else:
            raise Ambiguous(f"the section {section!r} of the oplog's entry is not known")
    return after


def _below(value: Any, diff: Mapping[str, Any], name: str) -> Any:
    if not diff.get("a"):
        if not isinstance(value, dict):
            raise Ambiguous(f"{name!r}: changed inside, expected an object")
        return apply_oplog_diff(value, diff)
    if not isinstance(value, list):
        raise Ambiguous(f"{name!r}: changed as an array, expected an array")
    items = list(value)
    if "l" in diff:
        del items[diff["l"] :]
    for section, change in diff.items():
        if section in ("a", "l"):
            continue
        if section[:1] not in ("u", "s") or not _INDEX.fullmatch(section[1:]):
            raise Ambiguous(f"the section {section!r} of the oplog's entry is not known")
        index = int(section[1:])
        items.extend([None] * (index + 1 - len(items)))
        items[index] = change if section[0] == "u" else _below(items[index], change, section)
    return items
