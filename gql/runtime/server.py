"""Server process: start MongoDB if it is embedded, open the gateway, serve until stopped, close.

SIGTERM and SIGINT: stop accepting, end subscriptions so that clients resume elsewhere, release the
leases, within a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import click
import uvloop

from revstream.gql.auth.authenticator import Authenticator
from revstream.gql.endpoint.allowed_hosts import allowed_hosts
from revstream.gql.observability.logging_setup import expect_refusals
from revstream.gql.observability.operation_metrics import Operations
from revstream.gql.observability.tracing import traced
from revstream.gql.runtime import gc_policy
from revstream.gql.runtime.asgi_app import create_app
from revstream.gql.runtime.configuration.auth_setup import sign_in_of
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.embedded.embedded_mongod import embedded_mongod
from revstream.gql.runtime.gateway import Gateway
from revstream.gql.runtime.lifecycle import open_gateway
from revstream.gql.runtime.management import management_app
from revstream.gql.runtime.progress_display import shown_progress, shown_readings
from revstream.gql.server.uvicorn_server import BACKLOG, UvicornServer
from revstream.gql.server.websocket_connection import Connections
from revstream.model.definition import Model

__all__ = ["Failed", "run", "serve"]

log = logging.getLogger(__name__)

# Seconds for the last messages of subscribers, one small message each.
_FAREWELL_MOST_S = 2.0
# libuv accepts one in each turn of the loop, of each descriptor that it listens on: the heads of
# these are read in the next one.
_ACCEPTED_A_TURN = 4
# That are open beside the connections of clients: those to MongoDB, most of all.
_OTHER_FILES = 300

Ready = Callable[[Gateway, str, str], Awaitable[None]]
Beside = Callable[[str], Awaitable[None]]


class Failed(Exception):
    """A part that the process cannot do without has died; it was logged where it died."""


class _Stop:
    """Reason for the end of the process: a signal, or a failure.

    Attributes:
        serving: whether the server has started, and is to end in order.
    """

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.failure: BaseException | None = None
        self.serving = False

    def fail(self, failure: BaseException) -> None:
        self.failure = self.failure or failure
        self.event.set()


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run the coroutine on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_as_coroutine(main))


async def _as_coroutine(main: Callable[[], Awaitable[None]]) -> None:
    await main()


async def serve(
    settings: Settings, model: Model, *, http: bool, ready: Ready | None = None
) -> None:
    """Serve until a signal or a failure.

    Args:
        http: False for listeners only.
        ready: given the gateway, its address and the URI, run beside the server; its failure ends
            the process.

    Raises:
        GatewayError, EmbeddedError, click.ClickException: it could not start; the message says why.
        Failed: it had to stop.
    """
    # Found out before anything is started.
    settings.origins()
    allowed_hosts(settings.allowed_hosts, settings.host)
    # Before anything is opened: what cannot be served safely is not.
    sign_in = sign_in_of(settings, model) if http else None
    stop = _Stop()
    tracing = traced(enabled=settings.tracing)
    with _signals(stop), tracing, _ports(settings, http=http) as ports:
        async with (
            _mongodb(settings, stop) as (uri, database),
            shown_progress() as report,
            shown_readings() as reading,
            open_gateway(
                settings,
                model,
                uri,
                database,
                serves=http,
                report=report,
                reading=reading,
                on_fatal=stop.fail,
            ) as gateway,
        ):
            report("", 0, 0)
            stop.serving = True
            gc_policy.settle(most=gc_policy.SERVING if http else gc_policy.RECORDING)
            beside = None if ready is None else lambda address: ready(gateway, address, uri)
            await _until_stopped(settings, gateway, sign_in, ports, stop, beside)
    if stop.failure is not None:
        raise Failed(str(stop.failure)) from stop.failure


def _allow_files(connections: Connections) -> None:
    """Raise the limit of open files as far as the system lets, and let in no more connections than
    leave some: without any, not even `/livez` is answered.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY or connections.fit(allowed - _OTHER_FILES):
        return
    facts = {"sockets": connections.most, "connections": connections.http.most}
    log.warning("few open files", extra={"allowed": allowed, **facts})


async def _until_stopped(
    settings: Settings,
    gateway: Gateway,
    sign_in: Authenticator | None,
    ports: _Ports,
    stop: _Stop,
    beside: Beside | None,
) -> None:
    address = ""
    async with asyncio.TaskGroup() as tasks:
        server = app = None
        # How many are open: none of who only records.
        sockets: Callable[[], int] = int
        if ports.api is not None:
            address = _address(ports.api)
            app = create_app(gateway, sign_in)
            _allow_files(app.state.connections)
            sockets = app.state.connections.__len__
            operations = app.state.operations
            server = UvicornServer(
                app,
                app.state.connections,
                message_bytes=settings.socket_message_bytes,
                shutdown_s=settings.shutdown_s,
                before_closing=lambda: _end_subscriptions(gateway, operations),
            )
            accepting = [ports.api, *(ports.api.dup() for _ in range(1, _ACCEPTED_A_TURN))]
            serving = tasks.create_task(server.serve(sockets=accepting))
        managing = None
        if ports.management is not None:
            management = management_app(gateway, app)
            # Serves until the API's server has ended: it tells that this process is not ready.
            managing = UvicornServer(
                management,
                management.state.connections,
                message_bytes=settings.socket_message_bytes,
                shutdown_s=1,
                before_closing=_nothing,
            )
            managed = tasks.create_task(managing.serve(sockets=[ports.management]))
            log.info("managing", extra={"address": _address(ports.management)})
        collecting = tasks.create_task(gc_policy.collect_garbage(sockets))
        key_stores = () if sign_in is None else sign_in.keys
        watching = [tasks.create_task(each.watch()) for each in key_stores]
        accompanying = None
        if beside is not None:
            accompanying = tasks.create_task(_guarded(beside(address), stop))
        log.info(
            "serving" if address else "recording", extra={"address": address} if address else {}
        )
        await stop.event.wait()
        log.info("stopping")
        gateway.hand_over()
        if accompanying is not None:
            accompanying.cancel()
        if server is not None:
            server.should_exit = True
            await serving
        if managing is not None:
            managing.should_exit = True
            await managed
        for each in watching:
            each.cancel()
        collecting.cancel()


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def _nothing() -> None:
    """Have nothing to do before the connections are closed."""


async def _guarded(work: Awaitable[None], stop: _Stop) -> None:
    try:
        await work
    except Exception as exc:
        log.exception("background task died", extra={"task": "beside the server"})
        stop.fail(exc)


async def _end_subscriptions(gateway: Gateway, operations: Operations) -> None:
    """End the subscriptions before their connections are closed."""
    expect_refusals()
    if gateway.end_subscriptions():
        with contextlib.suppress(TimeoutError):
            # A client that does not read would hold up the others.
            async with asyncio.timeout(_FAREWELL_MOST_S):
                await operations.none_on_sockets.wait()


@contextlib.contextmanager
def _signals(stop: _Stop) -> Iterator[None]:
    """A first signal ends what is being served in order, and a start at once; a second one waits
    for nothing.
    """
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    assert main is not None
    caught = (signal.SIGTERM, signal.SIGINT)

    def handle() -> None:
        if stop.event.is_set() or not stop.serving:
            main.cancel()
        stop.event.set()

    for each in caught:
        loop.add_signal_handler(each, handle)
    try:
        yield
    except asyncio.CancelledError:
        if not stop.event.is_set():
            raise
        log.info("stopped")
    finally:
        for each in caught:
            loop.remove_signal_handler(each)


@dataclass(frozen=True, slots=True)
class _Ports:
    """Listening sockets: of the API, and of health and metrics where they have one of their own."""

    api: socket.socket | None
    management: socket.socket | None


@contextlib.contextmanager
def _ports(settings: Settings, *, http: bool) -> Iterator[_Ports]:
    """Bind first: a port that is taken should not be found out after a minute of starting."""
    with contextlib.ExitStack() as stack:
        api = management = None
        if http:
            api = stack.enter_context(_bound(settings.host, settings.port, ""))
        if settings.management_port is not None:
            host = settings.management_host or settings.host
            management = stack.enter_context(_bound(host, settings.management_port, "management-"))
        yield _Ports(api, management)


@contextlib.contextmanager
def _bound(host: str, port: int, options: str) -> Iterator[socket.socket]:
    """Bind an address.

    Args:
        options: what the names of its options begin with.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as exc:
        # Python appends the address, which is said already.
        reason = str(getattr(exc, "strerror", exc)).partition(" (while attempting")[0]
        raise click.ClickException(
            f"address to listen on: {host}:{port}: {reason}; "
            f"choose another --{options}port or --{options}host"
        ) from exc
    with bound:
        yield bound


@asynccontextmanager
async def _mongodb(settings: Settings, stop: _Stop) -> AsyncIterator[tuple[str, str]]:
    """The URI and the database; of an embedded server where settings ask for one."""
    if settings.embedded is None:
        if settings.mongodb_uri is None:
            raise click.UsageError(
                "MongoDB: missing, expected a server; set --mongodb-uri URI for one that runs, or "
                "--embedded DIR to start one"
            )
        yield settings.mongodb_uri, settings.database_name()
        return
    if settings.mongodb_uri is not None:
        raise click.UsageError("--mongodb-uri and --embedded: both, expected one; remove the other")
    async with embedded_mongod(settings.embedded, on_death=stop.fail) as uri:
        yield uri, settings.database or "revstream"
