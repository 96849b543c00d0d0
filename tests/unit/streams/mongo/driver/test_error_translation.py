"""Translation of driver errors, without details that are not for clients."""

from __future__ import annotations

import pymongo.errors
import pytest

from revstream.streams.core.errors import (
    ConnectionLost,
    DatabaseError,
    DuplicateKey,
    GatewayError,
    NotWritable,
    TimeLimit,
    Unavailable,
    Unsuitable,
)
from revstream.streams.mongo.driver.error_translation import (
    error_from_reply,
    translate_driver_errors,
)

TOPOLOGY = ", Timeout: 1.0s, Topology Description: <TopologyDescription id: 1, servers: [secret]>"
REPLY = ", full error: {'ok': 0.0, 'errmsg': 'secret'}"
SETTINGS = " (configured timeouts: socketTimeoutMS: 20000.0ms, connectTimeoutMS: 20000.0ms)"


def translated(exc: Exception) -> GatewayError:
    with pytest.raises(GatewayError) as caught, translate_driver_errors():
        raise exc
    assert caught.value.__cause__ is exc
    return caught.value


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (pymongo.errors.ExecutionTimeout("operation exceeded time limit", 50), TimeLimit),
        (pymongo.errors.OperationFailure("exceeded", 50), TimeLimit),
        (pymongo.errors.OperationFailure("undone", 251), Unavailable),
        (pymongo.errors.OperationFailure("took too long", 290), Unavailable),
        (
            pymongo.errors.OperationFailure(
                "conflict", 112, {"errorLabels": ["TransientTransactionError"]}
            ),
            Unavailable,
        ),
        (pymongo.errors.DuplicateKeyError("E11000", 11000, {"keyValue": {"_id": 1}}), DuplicateKey),
        (
            pymongo.errors.BulkWriteError(
                {
                    "writeErrors": [
                        {"index": 0, "code": 11000, "keyValue": {"_id": 1}, "errmsg": "E11000"}
                    ]
                }
            ),
            DuplicateKey,
        ),
        (
            pymongo.errors.BulkWriteError(
                {"writeErrors": [{"index": 0, "code": 121, "errmsg": "bad"}]}
            ),
            DatabaseError,
        ),
        (
            pymongo.errors.BulkWriteError(
                {"writeErrors": [{"index": 0, "code": 11600, "errmsg": "stopping"}]}
            ),
            Unavailable,
        ),
        (
            pymongo.errors.BulkWriteError(
                {"writeErrors": [], "writeConcernErrors": [{"code": 91, "errmsg": "stopping"}]}
            ),
            Unavailable,
        ),
        (pymongo.errors.WriteConcernError("waiting for replication" + REPLY, 64), Unavailable),
        (pymongo.errors.NotPrimaryError("stepping down"), Unavailable),
        (pymongo.errors.ServerSelectionTimeoutError("no servers" + TOPOLOGY), Unavailable),
        (pymongo.errors.AutoReconnect("connection closed"), ConnectionLost),
        (pymongo.errors.NetworkTimeout("timed out"), Unavailable),
        (pymongo.errors.OperationFailure("in the process of being dropped", 215), Unavailable),
        (pymongo.errors.OperationFailure("not authorized on shop" + REPLY, 13), Unsuitable),
        (pymongo.errors.OperationFailure("Authentication failed." + REPLY, 18), Unsuitable),
        (pymongo.errors.OperationFailure("user is not allowed" + REPLY, 8000), Unsuitable),
        (pymongo.errors.OperationFailure("only supported on replica sets", 40573), Unsuitable),
        (pymongo.errors.OperationFailure("shop.things is a view", 166), NotWritable),
        (pymongo.errors.OperationFailure("cursor id 5 not found" + REPLY, 43), DatabaseError),
        (pymongo.errors.InvalidOperation("Cannot use MongoClient after close"), DatabaseError),
    ],
)
def test_a_driver_error_becomes_the_class_for_its_handling(
    exc: Exception, kind: type[GatewayError]
) -> None:
    """The classes are: too slow, duplicate, unavailable, not permitted, anything else."""
    found = translated(exc)
    assert type(found) is kind
    assert "secret" not in found.message
    assert "\n" not in found.message


def test_a_server_error_keeps_its_number() -> None:
    """Callers decide by it whether they can continue."""
    found = translated(pymongo.errors.OperationFailure("gone", 286))
    assert isinstance(found, DatabaseError)
    assert found.number == 286


def labelled(number: int, *labels: str) -> Exception:
    """Return the driver's error for such a reply, as wire connections raise it."""
    return error_from_reply({"ok": 0, "errmsg": "no", "code": number, "errorLabels": list(labels)})


@pytest.mark.parametrize(
    "labels", [["SystemOverloadedError", "RetryableError"], ["RetryableError"]]
)
def test_a_server_error_with_a_transient_label_is_unavailable(labels: list[str]) -> None:
    """The number does not matter: a newer server may have unknown numbers."""
    assert type(translated(labelled(462, *labels))) is Unavailable


@pytest.mark.parametrize(
    ("exc", "resumable"),
    [
        (labelled(462, "ResumableChangeStreamError"), True),
        (labelled(6), False),
        (labelled(280, "NonResumableChangeStreamError"), False),
        # These have no label.
        (labelled(43), True),
        (labelled(237), True),
    ],
)
def test_a_label_decides_whether_a_change_stream_may_resume(
    exc: Exception, resumable: bool
) -> None:
    """A list of numbers would differ with each version of the server."""
    found = translated(exc)
    assert isinstance(found, DatabaseError)
    assert found.resumable == resumable


def test_a_duplicate_key_is_named() -> None:
    """The message has the key, for the reader of the log."""
    found = translated(
        pymongo.errors.DuplicateKeyError("E11000", 11000, {"keyValue": {"sku": "A1"}})
    )
    assert "A1" in found.message


def test_a_standalone_server_is_an_error_with_a_fix() -> None:
    """Change streams need a replica set; the message says how to create one."""
    found = translated(pymongo.errors.OperationFailure("only supported on replica sets", 40573))
    assert "rs.initiate()" in found.message


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("h:1: refused" + SETTINGS + TOPOLOGY, "h:1: refused"),
        ("h:1: refused" + TOPOLOGY, "h:1: refused"),
        (
            'not authorized on shop to execute command { find: "orders", filter: { a: 1 } }',
            "not authorized on shop to execute command find",
        ),
    ],
)
def test_appended_parts_of_a_message_are_removed(message: str, kept: str) -> None:
    """These are settings, topology, replies, and the command with its values."""
    assert translated(pymongo.errors.AutoReconnect(message)).message.endswith(f": {kept}")


def test_other_exceptions_are_not_translated() -> None:
    """A bug stays the exception that it is."""
    with pytest.raises(ZeroDivisionError), translate_driver_errors():
        _ = 1 / 0
