"""Error codes: meaning, what a client can do, and the facts in `extensions`.

docs/reference/errors.md is made from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CODES", "ErrorCode"]

_TOKEN = {"resumeToken": "of a subscription: the last token, to subscribe again after"}


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A value of `extensions.code`.

    Attributes:
        meaning: when it comes.
        retry: whether the same request can succeed later: no, yes, or after a change.
        remedy: what a client does.
        facts: names and meanings of what else `extensions` may have.
    """

    meaning: str
    retry: str
    remedy: str
    facts: Mapping[str, str] = field(default_factory=dict)


CODES: Mapping[str, ErrorCode] = {
    "BAD_USER_INPUT": ErrorCode(
        "An argument cannot be understood, or does not fit another.",
        "no",
        "Correct the request.",
        {"argument": "the name of the argument"},
    ),
    "UNAUTHENTICATED": ErrorCode(
        "There is no valid sign-in. The message says what is wrong.",
        "after a change",
        "Sign in, or renew the token, and send the request again.",
        _TOKEN,
    ),
    "FORBIDDEN": ErrorCode(
        "A role or a row rule refuses this caller.",
        "no",
        "Ask as somebody else, or ask for less.",
        {"subject": "the type or the field"},
    ),
    "LIMIT_EXCEEDED": ErrorCode(
        "The request asks for more than one request may.",
        "no",
        "Ask for less at once: smaller pages, fewer fields, fewer conditions.",
        {
            "limit": "the setting that holds the bound",
            "asked": "what the request asks for",
            "bound": "the maximum",
        },
    ),
    "PERSISTED_QUERY_NOT_FOUND": ErrorCode(
        "The hash of the document is not known here.",
        "after a change",
        "Send the document together with its hash. Clients of Apollo's protocol do this "
        "themselves.",
    ),
    "DOCUMENT_MISFIT": ErrorCode(
        "A stored document does not fit the model.",
        "after a change",
        "Correct the document or the model; only this field of the answer is missing.",
        {
            "collection": "the collection of the document",
            "documentId": "the id of the document",
            "field": "the path of the field in the document",
            "mend": "how to correct the document",
            "alike": "number of further states with the same fault, which have no error of "
            "their own",
            "leftOut": "true if the document is left out of its page",
        },
    ),
    "RESUME_TOKEN_INVALID": ErrorCode(
        "The resume token is malformed, or of another deployment.",
        "no",
        "Read the present again, and subscribe after the token of that answer.",
    ),
    "HISTORY_LOST": ErrorCode(
        "The moment is before what the archive holds, or in a window that was lost.",
        "no",
        "Ask for a later moment, or subscribe after `oldestResumeToken`.",
        {
            "oldestResumeToken": "the oldest token that works",
            "oldestTime": "the oldest time that works",
            "oldestVersion": "the oldest version of the document that is left",
            "lostFrom": "the beginning of the window that was lost",
        },
    ),
    "ARCHIVE_BEHIND": ErrorCode(
        "The archive has not come so far within `--archive-wait-s`, or no process records.",
        "yes",
        "Send the request again after some seconds. If it lasts, see "
        "`streams` or `revstream doctor`.",
        {
            "collection": "the collection whose archive is behind",
            "documentId": "the document whose version is not recorded yet",
            "lagSeconds": "how far the archive is behind",
            **_TOKEN,
        },
    ),
    "SLOW_CONSUMER": ErrorCode(
        "The client did not read its events as fast as they came.",
        "yes",
        "Subscribe again after the last token; nothing is lost.",
        _TOKEN,
    ),
    "TIMEOUT": ErrorCode(
        "The read, or the whole operation, took longer than its limit.",
        "yes",
        "Send the request again; a mutation with the same `Idempotency-Key`. If it comes again, "
        "ask for less, or add an index (`@index`).",
        _TOKEN,
    ),
    "UNAVAILABLE": ErrorCode(
        "MongoDB cannot be reached or cannot serve, or the gateway has too much to do or is "
        "shutting down.",
        "yes",
        "Send the request again after the seconds of the header `Retry-After`; a mutation with "
        "the same `Idempotency-Key`. If it lasts, see `revstream doctor`.",
        {"retryAfterSeconds": "when to come again", **_TOKEN},
    ),
    "INTERNAL": ErrorCode(
        "A fault of revstream. The message is masked.",
        "no",
        "Report it with the lines of the log that have the incident.",
        {
            "incident": "the number under which the log has the fault",
            "requestId": "the id of the request, if it is no subscription",
        },
    ),
}
