"""What is no fault is no line."""

from __future__ import annotations

import logging

import pytest
from strawberry.http.exceptions import WebSocketDisconnected

from gql.logs import configure_logging


@pytest.mark.parametrize(("failure", "told"), [(WebSocketDisconnected(), 0), (ValueError("x"), 1)])
def test_a_client_that_is_gone_while_it_is_sent_something_is_not_told(
    failure: Exception, told: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Strawberry logs what ends an operation on a socket."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure_logging("info", json=False)
        logging.getLogger("strawberry.ws.task").exception("failed", exc_info=failure)
    finally:
        root.handlers[:], root.level = handlers, level
    assert capsys.readouterr().err.count("failed") == told
