"""Errors of requests, and of stored documents that do not match the model.

GatewayError                                 streams/core/errors.py
├── BadUserInput    BAD_USER_INPUT           names the argument or field, and both values
├── Unauthenticated UNAUTHENTICATED         no valid sign-in
│   └── SignInEnded                          a sign-in that was valid has expired or was revoked
├── Forbidden       FORBIDDEN                a role or a row rule refuses it
├── LimitExceeded   LIMIT_EXCEEDED           beyond a limit for one request; has both numbers
├── NumberMisfit    DOCUMENT_MISFIT          a stored number beyond its field's GraphQL type
└── DocumentMisfit  DOCUMENT_MISFIT          a stored value of another type than the model says
"""

from __future__ import annotations

from revstream.streams.core.errors import GatewayError

__all__ = [
    "BadUserInput",
    "DocumentMisfit",
    "Forbidden",
    "LimitExceeded",
    "SignInEnded",
    "Unauthenticated",
]


class BadUserInput(GatewayError):
    """Invalid argument or field of a request; repeating the request cannot succeed."""

    code = "BAD_USER_INPUT"


class Unauthenticated(GatewayError):
    """Missing or invalid sign-in."""

    code = "UNAUTHENTICATED"


class SignInEnded(Unauthenticated):
    """Expired or revoked sign-in."""


class Forbidden(GatewayError):
    """Access refused by a role or a row rule."""

    code = "FORBIDDEN"


class LimitExceeded(GatewayError):
    """Request beyond a limit; a smaller request can succeed."""

    code = "LIMIT_EXCEEDED"


class NumberMisfit(GatewayError):
    """Stored number beyond the GraphQL type of its field; affects only that field."""

    code = "DOCUMENT_MISFIT"


class DocumentMisfit(GatewayError):
    """Stored value that does not match the model; affects only the field that holds it.

    The request and revstream are not at fault: other programs write to the collection too.
    """

    code = "DOCUMENT_MISFIT"

    def __init__(
        self,
        *,
        collection: str,
        document_id: object,
        field: str,
        found: str,
        expected: str,
        mend: str,
        past: bool = False,
    ) -> None:
        """Create an error that names the document and the field.

        Args:
            document_id: the id as the API shows it.
            field: the dotted path of API names.
            found: the stored value, described for the message.
            expected: the expected type or values.
            mend: how to make the document match the model.
            past: True if a version of the past holds the value, which cannot be changed.
        """
        super().__init__(
            f"{collection}/{document_id}: {field}: {found}, expected {expected}",
            collection=collection,
            documentId=document_id,
            field=field,
            mend=mend,
        )
        self.past = past


class PersistedQueryNotFound(GatewayError):
    """Unknown hash of a persisted query; clients compare the message, which is part of the
    protocol.
    """

    code = "PERSISTED_QUERY_NOT_FOUND"

    def __init__(self) -> None:
        super().__init__("PersistedQueryNotFound")
