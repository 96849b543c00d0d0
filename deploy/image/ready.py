"""Exit with 0 if the gateway of this container is ready, else say why not: for HEALTHCHECK."""

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection

port = int(os.environ.get("REVSTREAM_PORT", "8000"))
connection = HTTPConnection("127.0.0.1", port, timeout=4)
connection.request("GET", "/readyz")
response = connection.getresponse()
sys.stdout.write(response.read().decode())
sys.exit(response.status != 200)
