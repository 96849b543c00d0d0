"""What is told to those whose request fails, whoever refuses it: an error finished by the table,
counted, and over HTTP one shape, with the status and the headers that belong to its code.

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
from revstream.streams.core.errors import GatewayError

__all__ = ["ErrorReporter", "answer"]

# Of what was not executed, by the first error's code. Other codes are of what the client asked.
_STATUS = {"UNAUTHENTICATED": 401, "FORBIDDEN": 403, "INTERNAL": 500, "UNAVAILABLE": 503}
# Where the error does not say it.
_RETRY_AFTER_S = 1


class ErrorReporter:
    """Of one process."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._storms = storms()
        self._incidents = Incidents()

    def finish(
        self, errors: list[GraphQLError], kind: str, token_out: Callable[[str], str] = str
    ) -> None:
        """Those of one response; see `finish_errors`."""
        finish_errors(errors, token_out, storms=self._storms, incidents=self._incidents)
        self._operations.note(errors, kind)

    def error(self, exc: Exception, kind: str = "unknown") -> GraphQLError:
        """Of what was not executed."""
        said = exc.message if isinstance(exc, GatewayError | Refused) else str(exc)
        error = GraphQLError(said, original_error=exc)
        self.finish([error], kind)
        return error

    def response(self, exc: Exception, media_type: MediaType = JSON) -> Response:
        """To a request that is refused as a whole."""
        body = {"errors": [self.error(exc).formatted]}
        if not isinstance(exc, Refused):
            return answer(body, media_type)
        response = answer(body, media_type, otherwise=exc.status)
        response.headers.update(exc.headers)
        return response


def answer(body: Mapping[str, Any], media_type: MediaType, *, otherwise: int = 400) -> Response:
    """To what was not executed.

    Args:
    body: as the GraphQL specification has it, 7.1 "Response Format".
    otherwise: the status where nothing was executed, unless the first error's code has one.
    """
    headers = {**HEADERS, "content-type": str(media_type)}
    error = body["errors"][0]
    facts = error["extensions"]
    status = _STATUS.get(facts["code"], otherwise)
    if status == 503:
        headers["retry-after"] = str(facts.get("retryAfterSeconds", _RETRY_AFTER_S))
    elif status == 401:
        words = error["message"].replace("\\", "").replace('"', "'")
        headers["www-authenticate"] = (
            f'Bearer realm="revstream", error="invalid_token", error_description="{words}"'
        )
    return Response(orjson.dumps(body), status, headers)
