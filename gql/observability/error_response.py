"""Error responses: finish each error by the error table, count it, and set HTTP status and headers.

Source: the specification "GraphQL over HTTP"; RFC 6750, 3; RFC 9110, 10.2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from graphql import GraphQLError
from starlette.responses import Response

from revstream.gql.http.headers import HEADERS
from revstream.gql.http.media_types import JSON, MediaType
from revstream.gql.http.request import Refused
from revstream.gql.observability.error_table import Incidents, finish_errors, storms
from revstream.gql.observability.operation_metrics import Operations
from revstream.gql.observability.request_id import REQUEST_ID
from revstream.streams.core.errors import GatewayError

__all__ = ["ErrorReporter", "answer"]

# Status of operations that were not executed, by the first error's code. Other codes: `otherwise`.
_STATUS = {"UNAUTHENTICATED": 401, "FORBIDDEN": 403, "INTERNAL": 500, "UNAVAILABLE": 503}
# Default, if the error has no `retryAfterSeconds`.
_RETRY_AFTER_S = 1


class ErrorReporter:
    """Reporter of the errors of one process: logs, counts and formats them for clients."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._storms = storms()
        self._incidents = Incidents()

    def finish(
        self, errors: list[GraphQLError], kind: str, token_out: Callable[[str], str] = str
    ) -> None:
        """Finish the errors of one response in place and count them; see `finish_errors`."""
        # An event may be for many subscribers, and is not for the first one's id.
        request_id = None if kind == "subscription" else REQUEST_ID.get()
        finish_errors(
            errors,
            token_out,
            storms=self._storms,
            incidents=self._incidents,
            request_id=request_id,
        )
        self._operations.note(errors, kind)

    def error(self, exc: Exception, kind: str = "unknown") -> GraphQLError:
        """Return the finished error for an operation that was not executed."""
        message = exc.message if isinstance(exc, GatewayError | Refused) else str(exc)
        error = GraphQLError(message, original_error=exc)
        self.finish([error], kind)
        return error

    def response(self, exc: Exception, media_type: MediaType = JSON) -> Response:
        """Return the response to a request that is refused as a whole."""
        body = {"errors": [self.error(exc).formatted]}
        if not isinstance(exc, Refused):
            return answer(body, media_type)
        response = answer(body, media_type, otherwise=exc.status)
        response.headers.update(exc.headers)
        return response


def answer(body: Mapping[str, Any], media_type: MediaType, *, otherwise: int = 400) -> Response:
    """Build the response to a request that was not executed.

    Args:
        body: response map of the GraphQL specification, 7.1 "Response Format".
        otherwise: status if the first error's code has no status of its own.
    """
    headers = {**HEADERS, "content-type": str(media_type)}
    error = body["errors"][0]
    facts = error["extensions"]
    status = _STATUS.get(facts["code"], otherwise)
    if status == 503:
        headers["retry-after"] = str(facts.get("retryAfterSeconds", _RETRY_AFTER_S))
    elif status == 401:
        description = error["message"].replace("\\", "").replace('"', "'")
        headers["www-authenticate"] = (
            f'Bearer realm="revstream", error="invalid_token", error_description="{description}"'
        )
    return Response(orjson.dumps(body), status, headers)
