"""References of compiled documents: the ids to read, and the values of lists of ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from revstream.gql.engine.definitions.object_type import Link
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.worker_thread import count_list
from revstream.gql.engine.request.references import known_ids, referenced_ids
from revstream.streams.changefeed.event import PLAIN_KEY_TYPES, identity
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["linked_ids", "render_list"]


def linked_ids(link: Link, documents: Iterable[Document]) -> dict[Any, Any]:
    """Return the ids to which a reference of documents leads, by `identity`, without invalid ones.

    Raises:
        LimitExceeded: the operation requests too many values.
    """
    if not link.reference.is_list:
        return referenced_ids(link, documents)
    found: dict[Any, Any] = {}
    for each in documents:
        ids = each.get(link.by.stored)
        # Before they are read, so that the limit bounds the work.
        count_list(ids, leaf=False)
        found |= {identity(id_): id_ for id_ in known_ids(link.by, ids)}
    return found


def render_list(ids: Any, rendered: Mapping[Any, Any]) -> Any:
    """Return the documents of a list of ids in its order, or FALLBACK if one was not rendered.

    Args:
        rendered: parts of the response by `identity` of the id; None for an id without a document.
    """
    if ids.__class__ is not list:
        return []
    shown = []
    for id_ in ids:
        part = None
        if id_ is not None:
            name = id_ if id_.__class__ in PLAIN_KEY_TYPES else identity(id_)
            part = rendered.get(name, FALLBACK)
        if part is FALLBACK:
            return FALLBACK
        if part is not None:
            shown.append(part)
    return shown
