"""The real command in a process of its own, as a user starts it, and its clients."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from tests.support import http
from tests.support.beginning import begin_new

ROOT = Path(__file__).parents[2]


class GraphQLFailed(Exception):
    """The response had errors; they are its arguments."""


@dataclass
class RunningGateway:
    """A started `revstream` process; `lines` is its output."""

    process: subprocess.Popen[str]
    address: str
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    def query(self, text: str, **variables: Any) -> dict[str, Any]:
        """Return the data of an operation.

        Raises:
            GraphQLFailed: the response has errors.
        """
        answer = self.post(text, **variables)
        if answer.get("errors"):
            raise GraphQLFailed(*answer["errors"])
        return answer["data"]

    def post(self, text: str, **variables: Any) -> dict[str, Any]:
        """Return the whole response."""
        response = http.post(
            f"{self.address}/graphql", json={"query": text, "variables": variables}, timeout=60
        )
        return response.json()

    def recorded(self, collection: str) -> str:
        """Return a resume token of the present, once the archive of a collection has reached it.

        Args:
            collection: its field, such as `products`.

        A field beside `...AsOf` in the same request does not wait for it: fields are read at the
        same time.
        """
        token: str = self.query("{ resumeToken }")["resumeToken"]
        moment = f"{collection}AsOf(asOf: {{ token: $at }})"
        self.query(f"query($at: ResumeToken!) {{ {moment} {{ totalCount }} }}", at=token)
        return token

    def subscribe(self, text: str, **variables: Any) -> AsyncGenerator[dict[str, Any], None]:
        return subscribe(self.address, text, **variables)

    def kill(self) -> None:
        """Kill the process, as `kill -9` does."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """Wait for the end of the process and read the rest of its output."""
        self.process.wait(timeout=60)
        if self.reader is not None:
            self.reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def stop(self) -> int:
        """Stop the process as a supervisor does, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@contextlib.contextmanager
def running_gateway(
    uri: str, database: str, model: Path, *options: str, command: str = "serve"
) -> Iterator[RunningGateway]:
    """Start a gateway and wait until it serves; it is killed at the end if it still runs."""
    with ensure_ended(start_gateway(uri, database, model, *options, command=command)) as gateway:
        yield gateway


@contextlib.contextmanager
def ensure_ended(gateway: RunningGateway) -> Iterator[RunningGateway]:
    """Make sure that the process ends, by itself or killed."""
    try:
        yield gateway
    except BaseException as exc:
        exc.add_note("".join(["output of the gateway:\n", *gateway.lines[-100:]]))
        raise
    finally:
        if gateway.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                gateway.process.terminate()
                gateway.process.wait(timeout=15)
            gateway.process.kill()
        gateway.close()


def start_gateway(
    uri: str, database: str, model: Path, *options: str, command: str = "serve"
) -> RunningGateway:
    begin_new(uri, database, model)
    return start_command(
        command,
        *("--mongodb-uri", uri, "--database", database, "--schema", str(model)),
        *(() if command == "record" else ("--port", "0")),
        *options,
    )


def start_command(
    *arguments: str,
    stdout: int | IO[str] = subprocess.DEVNULL,
    program: Sequence[str] = ("-m", "revstream"),
) -> RunningGateway:
    """Start `revstream` with these arguments; returns once it serves or records.

    Args:
        program: arguments of Python, for a program that runs the command in its own way.
    """
    process = subprocess.Popen(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=stdout,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    gateway = RunningGateway(process, "")
    assert process.stderr is not None
    for line in process.stderr:
        gateway.lines.append(line)
        found = re.search(r'serving"?[ ,]"?address"?[=:]"?([^\s"]+)|recording$', line.rstrip())
        if found:
            gateway.address = found.group(1) or ""
            break
    else:
        gateway.close()
        raise AssertionError(f"exited with {process.returncode}: {''.join(gateway.lines)}")
    # Keep reading: a full pipe would block the process.
    gateway.reader = threading.Thread(target=lambda: gateway.lines.extend(process.stderr or ()))
    gateway.reader.start()
    return gateway


def run_command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `revstream` with these arguments to its end."""
    return subprocess.run(
        [sys.executable, "-m", "revstream", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
    )


async def subscribe(
    address: str, text: str, *, protocol: str = "graphql-transport-ws", **variables: Any
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the `data` of each event, over a socket of its own.

    Raises:
        GraphQLFailed: an event has errors.
    """
    legacy = protocol == "graphql-ws"
    url = address.replace("http", "ws", 1) + "/graphql"
    async with connect(url, subprotocols=[Subprotocol(protocol)], max_size=None) as socket:
        await socket.send(json.dumps({"type": "connection_init"}))
        while json.loads(await socket.recv())["type"] != "connection_ack":
            pass
        payload = {"query": text, "variables": variables}
        start = "start" if legacy else "subscribe"
        await socket.send(json.dumps({"id": "1", "type": start, "payload": payload}))
        async for raw in socket:
            message = json.loads(raw)
            kind, body = message["type"], message.get("payload")
            if kind == "ping":
                await socket.send(json.dumps({"type": "pong"}))
            elif kind == "complete":
                return
            elif kind == "error":
                raise GraphQLFailed(*(body if isinstance(body, list) else [body]))
            elif kind in ("next", "data"):
                if body.get("errors"):
                    raise GraphQLFailed(*body["errors"])
                try:
                    yield body["data"]
                except GeneratorExit:
                    # Drop the connection, like a lost network: a closing handshake would first
                    # have to read all messages in flight.
                    socket.transport.abort()
                    raise
