# python watch.py ws://127.0.0.1:8000/graphql token.txt [sign-in.txt]     (pip install websockets)
# Every change, however often connection, gateway or program is lost: on after the last resumeToken.
import json
import sys
import time
from pathlib import Path

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

QUERY = """subscription ($after: ResumeToken) {
  productChanges(after: $after) { kind operation documentId resumeToken product { name stock } }
}"""
PASSING = {"ARCHIVE_BEHIND", "SLOW_CONSUMER", "TIMEOUT", "UNAVAILABLE"}  # A retry mends these.


def changes(url: str, after: str | None, sign_in: str | None):
    with connect(url, subprotocols=["graphql-transport-ws"], max_size=None) as socket:
        given = {"authorization": f"Bearer {Path(sign_in).read_text().strip()}"} if sign_in else {}
        socket.send(json.dumps({"type": "connection_init", "payload": given}))
        for text in socket:
            message = json.loads(text)
            body = message.get("payload")
            if message["type"] == "connection_ack":
                payload = {"query": QUERY, "variables": {"after": after}}
                socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": payload}))
            elif message["type"] == "ping":
                socket.send('{"type": "pong"}')
            elif message["type"] == "next" and body["data"]:
                # Of a document that does not fit the model: errors, and null for what does not fit.
                errors = {"errors": body["errors"]} if "errors" in body else {}
                yield {**body["data"]["productChanges"], **errors}
            elif message["type"] in ("next", "error"):
                errors = body if message["type"] == "error" else body["errors"]
                if not all(each["extensions"]["code"] in PASSING for each in errors):
                    sys.exit(f"the subscription was refused: {text}")
                return


url, file, new = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[2] + ".new")
sign_in = sys.argv[3] if len(sys.argv) > 3 else None  # Read for each connection.
while True:
    try:
        for change in changes(url, file.read_text() if file.exists() else None, sign_in):
            if change["kind"] == "CHANGE":
                print(json.dumps(change), flush=True)
            new.write_text(change["resumeToken"])  # Once it is dealt with: so none is missed.
            new.replace(file)
    except (OSError, WebSocketException) as exc:
        print(f"again in a second: {exc!r}", file=sys.stderr)
    time.sleep(1)
