"""Queries of the collections over HTTP, of current documents and as of a time point.

Unusual documents may have errors of their own, but must not affect others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx2 as httpx

from tests.fuzzing.collections import FuzzedCollection

__all__ = ["HEALTHY_FIELDS", "Queries", "selected"]

HEALTHY_FIELDS = "n text owner flag tags share sub { n text } any kind"
FIELDS = (
    "id n text big share flag price at oid uuid kind tags numbers any owner "
    "sub { n text any tags sub { n text } } subs { n text any }"
)
ALLOWED = frozenset({"DOCUMENT_MISFIT"})
ORDERS = ("", "{n: ASC}", "{text: DESC}, {big: ASC}", "{at: ASC}, {price: DESC}, {flag: ASC}")
_PAGE = 20


def selected(place: FuzzedCollection) -> str:
    """Return a selection of all fields of a type."""
    more = {"plain": "code", "targets": "plainId name copied plain { id text }"}
    return f"{FIELDS} {more.get(place.name, '')}"


class Queries:
    """Queries and their findings.

    Args:
        healthy: by collection and id, the fields of the valid documents.
    """

    def __init__(
        self, client: httpx.AsyncClient, healthy: Mapping[str, Mapping[str, Mapping[str, Any]]]
    ) -> None:
        self._client = client
        self._healthy = healthy
        self.findings: list[str] = []
        self.asked = 0
        # The errors of the last response.
        self._said = ""

    async def ask(self, query: str, *, allowed: frozenset[str] = ALLOWED) -> dict[str, Any]:
        """Return the data; errors with other codes than `allowed` are findings."""
        self.asked += 1
        response = await self._client.post("/graphql", json={"query": query})
        answer = response.json()
        self._said = str(answer.get("errors", ""))[:1000]
        for error in answer.get("errors", ()):
            said = error.get("extensions", {})
            if said.get("code") not in allowed and not (allowed and said.get("leftOut")):
                self.findings.append(f"answer: {str(error)[:400]} to {query[:300]}")
        data: dict[str, Any] = answer.get("data") or {}
        return data

    async def about(self, place: FuzzedCollection) -> None:
        """Run all queries of a collection."""
        token = (await self.ask("{ resumeToken }"))["resumeToken"]
        moment = f'asOf: {{token: "{token}"}}'
        await self.ask_of_healthy(place, f"{place.one}s", "")
        await self.ask_of_healthy(place, f"{place.one}sAsOf", moment)
        for order in ORDERS:
            await self._walk(place, f"{place.one}s", "", order)
            await self._walk(place, f"{place.one}sAsOf", moment, order)
        await self._walk_history(place)

    async def ask_of_healthy(self, place: FuzzedCollection, root: str, moment: str) -> None:
        """Check that a query of the valid documents alone has no errors."""
        ids = ", ".join(f'"{each}"' for each in self._healthy[place.name])
        for where in (f"{{id: {{in: [{ids}]}}}}", '{text: {startsWith: "healthy-"}}'):
            fields = f"id {HEALTHY_FIELDS}"
            nodes = f"document {{ {fields} }}" if moment else fields
            query = f"{{ {root}({moment} where: {where}) {{ nodes {{ {nodes} }} }} }}"
            data = await self.ask(query, allowed=frozenset())
            found = (data.get(root) or {}).get("nodes") or ()
            self._compare(place, root, [each["document"] if moment else each for each in found])

    async def _walk(self, place: FuzzedCollection, root: str, moment: str, order: str) -> None:
        """Check page by page that each valid document is there once."""
        after, found = "", []
        while True:
            arguments = f"{moment} first: {_PAGE} {after} {f'orderBy: [{order}]' if order else ''}"
            nodes = f"document {{ {FIELDS} }}" if moment else selected(place)
            data = await self.ask(
                f"{{ {root}({arguments}) {{ totalCount pageInfo {{ hasNextPage endCursor }} "
                f"nodes {{ version {nodes} }} }} }}"
            )
            page = data.get(root)
            if not page:
                self.findings.append(f"answer: no page of {root}({arguments}): {self._said}")
                return
            found += [each["document"] if moment else each for each in page["nodes"]]
            if not page["pageInfo"]["hasNextPage"]:
                break
            after = f'after: "{page["pageInfo"]["endCursor"]}"'
        self._compare(place, f"{root} {order}", found)

    async def _walk_history(self, place: FuzzedCollection) -> None:
        """Read the versions of each document with their changes."""
        after, root = "", f"{place.one}s"
        while True:
            data = await self.ask(
                f"{{ {root}(first: 5 {after}) {{ pageInfo {{ hasNextPage endCursor }} nodes {{ id "
                "version history(first: 10) { nodes { version operation author changedFields gap "
                f"document {{ {FIELDS} }} diff {{ path kind before after }} "
                "previous { version } } } "
                "blame { path value version { version } } } } }"
            )
            page = data.get(root)
            if not page:
                self.findings.append(f"answer: no page of {root} with history: {self._said}")
                return
            if not page["pageInfo"]["hasNextPage"]:
                return
            after = f'after: "{page["pageInfo"]["endCursor"]}"'

    def _compare(
        self, place: FuzzedCollection, said: str, nodes: Sequence[Mapping[str, Any]] | None
    ) -> None:
        right = self._healthy[place.name]
        found = [
            each for each in nodes or () if each and str(each.get("id")).partition("@")[0] in right
        ]
        ids = sorted(str(each["id"]).partition("@")[0] for each in found)
        if ids != sorted(right):
            self.findings.append(f"healthy documents: {said} shows {ids}, right is {sorted(right)}")
        for each in found:
            name = str(each["id"]).partition("@")[0]
            shown = {field: each[field] for field in right[name] if field in each}
            shown["sub"] = {k: v for k, v in (shown.get("sub") or {}).items() if k in ("n", "text")}
            expected = {field: right[name][field] for field in shown}
            if shown != expected:
                self.findings.append(
                    f"healthy documents: {said} shows {shown}, right is {expected}"
                )
