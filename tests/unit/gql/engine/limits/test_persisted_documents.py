"""Persisted documents: hashes or names in place of the text."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from revstream.gql.engine.limits.persisted_documents import (
    AutomaticDocuments,
    TrustedDocuments,
    read_manifest,
)
from revstream.resolvers.errors import BadUserInput, Forbidden, PersistedQueryNotFound

QUERY = "{ streams { name } }"
HASH = hashlib.sha256(QUERY.encode()).hexdigest()


def extensions(name: Any = HASH, version: Any = 1) -> dict[str, Any]:
    return {"persistedQuery": {"version": version, "sha256Hash": name}}


def test_a_hash_is_sufficient_after_the_document_was_sent_with_it() -> None:
    """This is Apollo's protocol: not found, then both, and from then on the hash."""
    documents = AutomaticDocuments()
    for nothing in (None, ""):
        with pytest.raises(PersistedQueryNotFound, match=r"^PersistedQueryNotFound$"):
            documents.text_of(nothing, extensions())
    assert documents.text_of(QUERY, extensions()) == QUERY
    assert documents.text_of(None, extensions()) == QUERY
    assert documents.text_of(QUERY, None) == QUERY
    assert documents.text_of(None, {}) is None


def test_a_hash_of_another_document_is_refused() -> None:
    """Otherwise a client could replace a document that others use."""
    documents = AutomaticDocuments()
    with pytest.raises(BadUserInput, match=f"{'0' * 64}, expected {HASH}"):
        documents.text_of(QUERY, extensions("0" * 64))
    with pytest.raises(PersistedQueryNotFound):
        documents.text_of(None, extensions("0" * 64))


@pytest.mark.parametrize(
    "given",
    [
        5,
        "x",
        {},
        {"sha256Hash": HASH},
        {"version": 1},
        extensions(5),
        extensions(version=2)["persistedQuery"],
    ],
)
def test_an_invalid_hash_is_refused(given: Any) -> None:
    """The error has the expected form."""
    given = given.get("persistedQuery", given) if isinstance(given, dict) else given
    for documents in (AutomaticDocuments(), TrustedDocuments({})):
        with pytest.raises(BadUserInput, match="sha256Hash"):
            documents.text_of(None, {"persistedQuery": given})


def test_the_number_of_stored_documents_is_limited() -> None:
    """A client that floods the store only makes others send their documents again."""
    documents = AutomaticDocuments(most=10, most_characters=1000)
    for number in range(1000):
        text = f"{{ a{number} }}"
        documents.text_of(text, extensions(hashlib.sha256(text.encode()).hexdigest()))
    found = 0
    for number in range(1000):
        hash_ = hashlib.sha256(f"{{ a{number} }}".encode()).hexdigest()
        with suppress(PersistedQueryNotFound):
            found += documents.text_of(None, extensions(hash_)) is not None
    assert found == 10


APOLLO = {
    "format": "apollo-persisted-query-manifest",
    "version": 1,
    "operations": [{"id": HASH, "name": "Q", "type": "query", "body": QUERY}],
}


@pytest.mark.parametrize("manifest", [APOLLO, {HASH: QUERY}], ids=["apollo", "relay"])
def test_only_trusted_documents_are_executed(tmp_path: Path, manifest: dict[str, Any]) -> None:
    """They are given by name or by text, from either kind of file."""
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest))
    documents = TrustedDocuments(read_manifest(path))
    assert documents.text_of(None, extensions()) == QUERY
    assert documents.text_of(QUERY, None) == QUERY
    assert documents.text_of(None, None) is None
    with pytest.raises(Forbidden, match="expected a trusted document"):
        documents.text_of(QUERY + " ", None)
    with pytest.raises(Forbidden, match="expected a trusted document"):
        # A known name does not allow another text.
        documents.text_of("{ resumeToken }", extensions())
    with pytest.raises(Forbidden, match="'nope', expected the name of a trusted document"):
        documents.text_of(None, extensions("nope"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected Apollo's"),
        ('{"format": "other", "version": 1, "operations": []}', "format 'other'"),
        (json.dumps({**APOLLO, "version": 2}), "version 2"),
        (json.dumps({**APOLLO, "operations": {}}), "not a list of objects"),
        (json.dumps({**APOLLO, "operations": [{"id": "x"}]}), "'x': None, expected the text"),
        ('{"a": 5}', "'a': 5, expected the text"),
        ('{"a": " "}', "'a': ' ', expected the text"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused_with_a_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    """The error has its path."""
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as refused:
        read_manifest(path)
    assert str(path) in str(refused.value)
    with pytest.raises(ValueError, match="No such file"):
        read_manifest(tmp_path / "none.json")
