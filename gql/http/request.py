"""GraphQL requests over HTTP: read within limits, and validated.

A request is a JSON object of `application/json` in UTF-8, or the query of a URL. Other content
types are refused, since a form on any page could send them.

Source: the specification "GraphQL over HTTP", "Request".
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from revstream.gql.http.media_types import parse_media_type

__all__ = [
    "GraphQLRequest",
    "Refused",
    "headers_of",
    "json_from_request",
    "read_json",
    "read_request",
]

# Maximum time to receive a body.
_BODY_MOST_S = 60.0
_MOST_FIELDS = 100
_NAMES = ("query", "variables", "operationName", "extensions")
_KINDS = (str, dict, str, dict)
_BATCH = "request: a list, expected a JSON object; send each request by itself"


class Refused(Exception):
    """Refusal of a request, with message and status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


@dataclass(slots=True)
class GraphQLRequest:
    """Parameters of a GraphQL request.

    Attributes:
        query: None for an operation that is known by another name, as a persisted query.
    """

    query: str | None = None
    variables: dict[str, Any] | None = field(default=None, repr=False)
    operation_name: str | None = None
    extensions: dict[str, Any] | None = None


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers of a request; values of a repeated header are joined by commas.

    Source: RFC 9110, 5.2.
    """
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


async def read_request(
    scope: Scope, receive: Receive, headers: Mapping[str, str], *, most_bytes: int
) -> GraphQLRequest:
    """Read the parameters of a GET or POST request.

    Raises:
        Refused: 400, 408, 413 or 415.
        ClientDisconnect: the body is incomplete.
    """
    if scope["method"] == "GET":
        return _checked(_of_address(scope["query_string"]))
    return _checked(await read_json(receive, headers, most_bytes=most_bytes))


async def read_json(receive: Receive, headers: Mapping[str, str], *, most_bytes: int) -> Any:
    """Read a JSON body of a content type that no form can send.

    Raises:
        Refused: 400, 408, 413 or 415.
        ClientDisconnect: the body is incomplete.
    """
    _check_type(headers.get("content-type", ""), headers.get("content-encoding", ""))
    given = headers.get("content-length", "")
    return _json(await _body(receive, given, most_bytes), "request")


# Clients repeat these headers in each request.
@lru_cache(maxsize=128)
def _check_type(content_type: str, encoding: str) -> None:
    found = parse_media_type(content_type)
    if found is None or found.name != "application/json":
        raise Refused(
            415,
            f"content type: {repr(content_type[:100]) if content_type else 'none'}, "
            "expected application/json",
        )
    charset = found.parameters.get("charset", "utf-8")
    if charset not in ("utf-8", "utf8"):
        raise Refused(415, f"charset: {charset[:100]!r}, expected utf-8")
    if encoding.strip().lower() not in ("", "identity"):
        raise Refused(
            415,
            f"content encoding: {encoding[:100]!r}, expected none",
            headers={"accept-encoding": "identity"},
        )


async def _body(receive: Receive, given: str, most: int) -> bytes:
    """Read a body within the limits.

    Args:
        given: announced length.
    """
    if given.isdecimal() and (len(given) > 18 or int(given) > most):
        raise _too_long(most)
    # The connection has a time limit for the first part, which nearly always is the whole body.
    body, more = await _part(receive, b"", most)
    try:
        if more:
            async with asyncio.timeout(_BODY_MOST_S):
                while more:
                    body, more = await _part(receive, body, most)
    except TimeoutError:
        raise Refused(
            408, f"request body: incomplete after {_BODY_MOST_S:g} s; send it again"
        ) from None
    return body


async def _part(receive: Receive, body: bytes, most: int) -> tuple[bytes, bool]:
    """Return a body with its next part, and whether more follows."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    body += message.get("body", b"")
    if len(body) > most:
        raise _too_long(most)
    return body, message.get("more_body", False)


def _too_long(most: int) -> Refused:
    return Refused(
        413, f"request body: more than {most:,} bytes, which is the maximum (--body-bytes)"
    )


def _of_address(raw: bytes) -> dict[str, Any]:
    """Parse the query of a URL; two of its parameters are JSON."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError as exc:
        reason = "not UTF-8" if isinstance(exc, UnicodeError) else str(exc)
        raise Refused(400, f"query of the URL: {reason}") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found and name in _NAMES:
            raise Refused(400, f"{name}: given more than once in the URL, expected once")
        found[name] = value
    for name in ("variables", "extensions"):
        if found.get(name):
            found[name] = _json(found[name], name)
        else:
            found.pop(name, None)
    return found


def json_from_request(raw: bytes | str) -> Any:
    """Decode JSON with all digits of its integers; the scalars check their range.

    Raises:
        orjson.JSONDecodeError: invalid JSON; also text that is not UTF-8, halves of surrogate
            pairs, excessive nesting, and numbers out of range.
    """
    value = orjson.loads(raw)
    long = _LONG_NUMBER_BYTES if isinstance(raw, bytes) else _LONG_NUMBER
    if not long.search(raw):  # type: ignore[arg-type]
        return value
    # orjson decodes an integer of more than 64 bits as a double.
    try:
        return json.loads(raw)
    except RecursionError:
        raise orjson.JSONDecodeError("nested too deeply", "", 0) from None


_LONG_NUMBER = re.compile(r"[\[:,\s-][0-9]{19}")
_LONG_NUMBER_BYTES = re.compile(_LONG_NUMBER.pattern.encode())


def _json(raw: bytes | str, what: str) -> Any:
    try:
        return json_from_request(raw)
    except orjson.JSONDecodeError as exc:
        # Without the document, which `str(exc)` would contain.
        raise Refused(400, f"{what}: not JSON: {exc.msg}") from None


def _checked(given: object) -> GraphQLRequest:
    if isinstance(given, list):
        raise Refused(400, _BATCH)
    if not isinstance(given, dict):
        raise Refused(400, f"request: {_kind(given)}, expected a JSON object")
    query, variables, name, extensions = asked = tuple(map(given.get, _NAMES))
    if query.__class__ is str and variables.__class__ is dict and name is extensions is None:
        # The most frequent form.
        return GraphQLRequest(query, variables)
    for value, kind, each in zip(asked, _KINDS, _NAMES, strict=True):
        if value is not None and value.__class__ is not kind:
            expected = "text" if kind is str else "an object"
            raise Refused(400, f"{each}: {_kind(value)}, expected {expected}")
    return GraphQLRequest(query, variables, name or None, extensions)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    kinds: dict[type, str] = {str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number")
