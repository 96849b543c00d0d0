"""What a request can be told that it did wrong, or asked of a document that does not fit.

GatewayError                                 streams/core/errors.py
├── BadUserInput    BAD_USER_INPUT           names the argument or field, and both values
├── Unauthenticated UNAUTHENTICATED         who asks has not signed in, or not so that it counts
│   └── SignInEnded                          what counted counts no more; sign in anew, and go on
├── Forbidden       FORBIDDEN                a role or a row rule says no
├── LimitExceeded   LIMIT_EXCEEDED           more than one request may ask for; has both numbers
├── NumberMisfit    DOCUMENT_MISFIT          a stored number that its field's GraphQL type lacks
└── DocumentMisfit  DOCUMENT_MISFIT          a stored value that is not what the model says it is
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
    """The request asks for something that cannot be; asking again will not help."""

    code = "BAD_USER_INPUT"


class Unauthenticated(GatewayError):
    """The one who asks has to sign in, or what he signs in with cannot be accepted."""

    code = "UNAUTHENTICATED"


class SignInEnded(Unauthenticated):
    """What the one who asks has signed in with has expired, or was withdrawn."""


class Forbidden(GatewayError):
    """The one who asks may not have it."""

    code = "FORBIDDEN"


class LimitExceeded(GatewayError):
    """The request asks for more than one request may; smaller ones will do."""

    code = "LIMIT_EXCEEDED"


class NumberMisfit(GatewayError):
    """A number beyond the GraphQL type of its field; only that field is affected."""

    code = "DOCUMENT_MISFIT"


class DocumentMisfit(GatewayError):
    """A stored value does not fit the model; only the field that holds it is affected.

    Not a fault of the request, nor of revstream: other programs write to the collection too.
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
        """Name document and field.

        Args:
            document_id: as the API shows it.
            field: the dotted path of API names.
            mend: how to make document and model fit.
            past: whether a state of the past holds it, which stays as it is.
        """
        super().__init__(
            f"{collection}/{document_id}: {field} holds {found}, {expected} expected",
            collection=collection,
            documentId=document_id,
            field=field,
            mend=mend,
        )
        self.past = past


class PersistedQueryNotFound(GatewayError):
    """Its message is part of the protocol, as clients compare it."""

    code = "PERSISTED_QUERY_NOT_FOUND"

    def __init__(self) -> None:
        super().__init__("PersistedQueryNotFound")
