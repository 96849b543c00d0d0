# python watch.py ws://127.0.0.1:8000/graphql token.txt     (pip install websockets)
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


def changes(url: str, after: str | None):
    with connect(url, subprotocols=["graphql-transport-ws"], max_size=None) as socket:
        socket.send('{"type": "connection_init"}')
        for text in socket:
            message = json.loads(text)
            if message["type"] == "connection_ack":
                payload = {"query": QUERY, "variables": {"after": after}}
                socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": payload}))
            elif message["type"] == "next" and "errors" not in message["payload"]:
                yield message["payload"]["data"]["productChanges"]
            elif '"UNAVAILABLE"' in text or '"SLOW_CONSUMER"' in text:
                return  # It ends, or this was too slow: the rest comes after the last token.
            elif message["type"] in ("next", "error"):
                sys.exit(f"the subscription was refused: {text}")


url, file, new = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[2] + ".new")
while True:
    try:
        for change in changes(url, file.read_text() if file.exists() else None):
            if change["kind"] == "CHANGE":
                print(json.dumps(change), flush=True)
            new.write_text(change["resumeToken"])  # Once it is dealt with: so none is missed.
            new.replace(file)
    except (OSError, WebSocketException) as exc:
        print(f"again in a second: {exc!r}", file=sys.stderr)
    time.sleep(1)
