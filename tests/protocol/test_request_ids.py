"""Ids of requests that clients send in `X-Request-ID`."""

from __future__ import annotations

import re

import pytest

from tests.support import http
from tests.support.gateway import RunningGateway


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", 'a"b', "\u00e9"])
def test_an_id_that_a_log_would_have_to_escape_is_replaced(
    gateway: RunningGateway, given: str
) -> None:
    """It must not fill the log, or look like something else in it."""
    header = {b"x-request-id": given.encode()}
    answer = http.get(f"{gateway.address}/livez", headers=header)
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


@pytest.mark.parametrize("given", ["r1", "x" * 128, "0af7651916cd43dd:1/2.3+4=@_-"])
def test_an_id_of_a_client_or_a_proxy_is_kept(gateway: RunningGateway, given: str) -> None:
    """So one id leads through all programs that a request passes."""
    answer = http.post(
        f"{gateway.address}/graphql",
        json={"query": "{ __typename }"},
        headers={"X-Request-ID": given},
    )
    assert answer.headers["x-request-id"] == given
