"""HTTP requests to the servers of tests, over connections without TLS.

httpx loads the CA certificates of the system for each request, in 30 ms.
"""

from __future__ import annotations

import ssl
from functools import partial

import httpx2 as httpx

__all__ = ["get", "post", "request"]

_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

get = partial(httpx.get, verify=_NO_CERTIFICATES)
post = partial(httpx.post, verify=_NO_CERTIFICATES)
request = partial(httpx.request, verify=_NO_CERTIFICATES)
