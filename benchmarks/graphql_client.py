"""A GraphQL client that sends one request after the other, over one connection."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from benchmarks.processes import Failed

__all__ = ["GraphqlClient", "connect"]


@dataclass(frozen=True, slots=True)
class GraphqlClient:
    """One HTTP connection that stays open."""

    connection: http.client.HTTPConnection

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Return the data of the response.

        Raises:
            Failed: the response has errors.
        """
        body = json.dumps({"query": query, "variables": variables})
        self.connection.request("POST", "/graphql", body, {"Content-Type": "application/json"})
        answer = json.load(self.connection.getresponse())
        if answer.get("errors"):
            raise Failed(f"{query}: {answer['errors']}")
        data: dict[str, Any] = answer["data"]
        return data


def connect(address: str) -> GraphqlClient:
    """Return a client of the server at `http://host:port`."""
    at = urlsplit(address)
    assert at.hostname is not None
    return GraphqlClient(http.client.HTTPConnection(at.hostname, at.port or 80, timeout=120))
