"""Persisted documents: automatic persisted queries, and a list of trusted documents.

Automatic: a client sends the SHA-256 hash of a document; if it is unknown, the client receives
PERSISTED_QUERY_NOT_FOUND and sends document and hash; from then on the hash is enough. The stored
documents are bounded.
Trusted: only the documents of a file that the clients' build has written are executed, by name or
by text.

Source: Apollo's protocol of automatic persisted queries, version 1; docs/decisions/0025.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from revstream.resolvers.errors import BadUserInput, Forbidden, PersistedQueryNotFound
from revstream.streams.core.lru_cache import LruCache

__all__ = [
    "AutomaticDocuments",
    "Persisted",
    "TrustedDocuments",
    "read_manifest",
]


class Persisted(Protocol):
    """Resolver of the document that a request names."""

    def text_of(self, query: str | None, extensions: Mapping[str, Any] | None) -> str | None:
        """Return the text of the request's document; None or empty if it has none.

        Args:
            query: the text that was sent; empty where a protocol requires a text.

        Raises:
            PersistedQueryNotFound, BadUserInput, Forbidden: the document is unknown or refused.
        """


class AutomaticDocuments:
    """Documents that clients have sent with their hashes, in memory.

    Args:
        most: maximum number of documents; the least recently used is evicted first.
        most_characters: maximum number of characters of all documents.
    """

    def __init__(self, *, most: int = 1000, most_characters: int = 4_000_000) -> None:
        self._kept = LruCache[str, str](most=most, most_size=most_characters)

    def text_of(self, query: str | None, extensions: Mapping[str, Any] | None) -> str | None:
        asked = _name_in(extensions)
        if asked is None:
            return query
        if not query:
            found = self._kept.get(asked)
            if found is None:
                raise PersistedQueryNotFound
            return found
        actual = hashlib.sha256(query.encode("utf-8", "replace")).hexdigest()
        if actual != asked:
            raise BadUserInput(
                f"extensions.persistedQuery.sha256Hash: {asked[:64]}, expected {actual}; send the "
                "document's SHA-256"
            )
        self._kept.put(asked, query, len(query))
        return query


class TrustedDocuments:
    """Documents that may be executed; all others are refused.

    Args:
        documents: texts by the name that clients send, usually a hash.
    """

    def __init__(self, documents: Mapping[str, str]) -> None:
        self._documents = documents
        self._texts = frozenset(documents.values())

    def text_of(self, query: str | None, extensions: Mapping[str, Any] | None) -> str | None:
        asked = _name_in(extensions)
        if not query and asked is not None:
            found = self._documents.get(asked)
            if found is None:
                raise Forbidden(
                    f"extensions.persistedQuery.sha256Hash: {asked[:80]!r}, expected the name of a "
                    "trusted document; send one of them"
                )
            return found
        if query and query not in self._texts:
            raise Forbidden("the document: unknown, expected a trusted document; send one of them")
        return query


def read_manifest(path: Path) -> dict[str, str]:
    """Read the documents of a file by name: Apollo's persisted query manifest, or Relay's map.

    Raises:
        ValueError: the file cannot be read or has neither form; the message has the position.
    """
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ValueError(f"{path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise ValueError(f"{path}: not JSON: {exc}") from exc
    expected = (
        'expected Apollo\'s persisted query manifest ({"format": "apollo-persisted-query-manifest",'
        ' "version": 1, "operations": [{"id", "body", …}]}) or an object of documents by name'
    )
    if not isinstance(read, dict):
        raise ValueError(f"{path}: no object, {expected}")
    if "format" in read or "operations" in read:
        form, version = read.get("format"), read.get("version")
        if form != "apollo-persisted-query-manifest" or version != 1:
            raise ValueError(f"{path}: format {form!r}, version {version!r}, {expected}")
        operations = read.get("operations")
        if not isinstance(operations, list) or not all(isinstance(e, dict) for e in operations):
            raise ValueError(f"{path}: operations: not a list of objects, {expected}")
        read = {str(each.get("id")): each.get("body") for each in operations}
    for name, document in read.items():
        if not isinstance(document, str) or not document.strip():
            raise ValueError(f"{path}: {name!r}: {document!r:.40}, expected the text of a document")
    return read


def _name_in(extensions: Mapping[str, Any] | None) -> str | None:
    if not extensions:
        return None
    given = extensions.get("persistedQuery") if isinstance(extensions, Mapping) else None
    if given is None:
        return None
    name = given.get("sha256Hash") if isinstance(given, Mapping) else None
    if not isinstance(name, str) or given.get("version") != 1:
        raise BadUserInput(
            f"extensions.persistedQuery: {given!r:.80}, expected "
            '{"version": 1, "sha256Hash": "…"}; correct it'
        )
    return name
