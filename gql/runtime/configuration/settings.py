"""Every setting once: its default, its help, its option and its environment variable.

`--read-limit-s` is `REVSTREAM_READ_LIMIT_S`, and so on. An unknown `REVSTREAM_…` name is an error:
a misspelt one would otherwise be silence. README's table is compared with this class by a test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import click
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri
from strawberry.http.websocket_origin import normalize_allowed_origins

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.engine.limits.document_limits import Limits
from revstream.gql.engine.limits.operation_budget import OperationLimits
from revstream.gql.engine.limits.persisted_documents import (
    AutomaticDocuments,
    Persisted,
    TrustedDocuments,
    read_manifest,
)
from revstream.gql.engine.limits.subscription_filters import SubscriptionFilters
from revstream.streams.mongo.driver.client import MongoOptions
from revstream.streams.mongo.driver.error_translation import redact_uri

__all__ = ["PREFIX", "Settings"]

PREFIX = "REVSTREAM_"

_SCHEMA = Path("schema.graphql")


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Built once, from the command line and the environment; printed without the URI's password and
    without the sinks' secrets."""

    schema: Path = _setting(_SCHEMA, "The model: which collections there are and what is in them.")
    mongodb_uri: str | None = _setting(None, "The replica set, as a MongoDB URI.")
    mongodb_uri_file: Path | None = _setting(
        None, "A file that holds the URI, as secrets are handed to containers."
    )
    embedded: Path | None = _setting(
        None, "Run a MongoDB of its own, with its data in this directory."
    )
    database: str | None = _setting(None, "The database; without it, the one that the URI names.")
    host: str = _setting("127.0.0.1", "The address to listen on.")
    port: int = _setting(8000, "The port to listen on; 0 takes a free one.")
    allowed_origins: str | None = _setting(
        None,
        "Origins whose pages may use the API, separated by commas, as https://app.example.org; "
        "* for any. Without it, only pages of this address may.",
    )
    allowed_hosts: str | None = _setting(
        None,
        "Names that requests may go to, separated by commas, as app.example.org; * for any. "
        "Without it, any; but only localhost where --host is this machine's own address.",
    )
    body_bytes: int = _setting(1024 * 1024, "The longest request over HTTP.")
    heartbeat_s: float = _setting(
        12.0, "The longest that a stream over HTTP is silent, so that no proxy cuts it off."
    )
    relay: bool = _setting(
        False,
        "Whether to name ids as Relay asks for: `id` is unique across all types, and a document's "
        "own is `documentId` (docs/clients.md).",
    )
    record: bool = _setting(True, "Whether this process offers itself as recorder.")
    listeners: str | None = _setting(
        None,
        "Listeners of your own, as module:Class, separated by commas (docs/listeners.md).",
    )
    sink_secrets: str | None = _setting(
        None,
        "Secrets that deliveries are signed with, whsec_… or URL=whsec_…, separated by commas "
        "(docs/sinks.md). Best given in the environment.",
    )
    sink_secrets_file: Path | None = _setting(None, "A file that holds them.")
    images: bool = _setting(
        True, "Whether to have MongoDB keep the images before and after each write."
    )
    experimental_sharded: bool = _setting(
        False,
        "Whether to serve a sharded cluster, though some changes are not understood there; "
        "`revstream doctor` says which.",
    )
    driver: Literal["motor", "pymongo"] = _setting("motor", "Which MongoDB driver to use.")
    ring_events: int = _setting(
        10_000, "Events per collection kept in memory for those who reconnect."
    )
    ring_bytes: int = _setting(
        64 * 1024 * 1024, "The most memory that a collection's ring may take."
    )
    backlog_events: int = _setting(
        5000, "Events that may wait for one subscriber before it is ended."
    )
    backlog_bytes: int = _setting(
        64 * 1024 * 1024, "About the most memory that these events may take."
    )
    sockets: int = _setting(
        10_000, "WebSockets that may be open at once; whoever comes next is told to try again."
    )
    connections: int = _setting(
        5000,
        "HTTP connections that may be open at once, those of streams included; over it, one that "
        "waits for its client makes room, or a request is told to try again.",
    )
    connections_bytes: int = _setting(
        256 * 1024 * 1024,
        "The most that may lie in the buffers of all HTTP connections together, for clients that "
        "do not read; over it, those that hold the most are closed.",
    )
    sockets_bytes: int = _setting(
        128 * 1024 * 1024,
        "The most that may lie in the buffers of all WebSockets together; over it, those that hold "
        "the most are closed.",
    )
    socket_message_bytes: int = _setting(
        1024 * 1024, "The longest message that a WebSocket takes; a longer one closes it."
    )
    socket_stalled_s: float = _setting(
        20.0,
        "How long a client may take nothing of what it is sent, over a WebSocket or HTTP, before "
        "its connection is closed.",
    )
    quiet_s: float = _setting(
        20.0,
        "The longest that a subscriber waits for a fresher token while there are no events; some "
        "wait half as long.",
    )
    lease_s: float = _setting(10.0, "How long a recorder's lease holds without being renewed.")
    archive_wait_s: float = _setting(5.0, "How long a read of history waits for the recorder.")
    author_header: str | None = _setting(
        None,
        "The request header that says who writes. It is believed: only for gateways that nothing "
        "but a proxy reaches that sets it.",
    )
    jwt_keys: str | None = _setting(
        None,
        "The JWKS that tokens are signed with: a URL, or a file (docs/access.md).",
    )
    jwt_keys_s: float = _setting(
        300.0,
        "How often the JWKS is read again: a key that was withdrawn is believed for so long.",
    )
    jwt_algorithms: str = _setting(
        "RS256", "The algorithms that tokens may be signed with, separated by commas."
    )
    jwt_issuer: str | None = _setting(None, "The `iss` that tokens must have.")
    jwt_audience: str | None = _setting(None, "The `aud` that tokens must have, or have among it.")
    jwt_leeway_s: float = _setting(
        5.0, "How far the issuer's clock may differ, for `exp` and `nbf`."
    )
    jwt_roles: str = _setting(
        "roles",
        "The claim with the caller's roles; `realm_access.roles` for one inside of another.",
    )
    api_keys: Path | None = _setting(
        None, "A file with the keys of services, hashed, and who they are (docs/access.md)."
    )
    anonymous: bool = _setting(
        False,
        "Whether those who have not signed in are served, as callers without roles, where there is "
        "something to sign in with or `@access` in the model.",
    )
    admin_role: str | None = _setting(
        None, "The role that may list who is connected, and disconnect them, under /admin."
    )
    repeat_window_s: float = _setting(
        86_400.0, "How long a mutation may be sent again under its idempotency key."
    )
    retention_every_s: float = _setting(
        3600.0, "How often versions are dropped that the model does not keep (`keep`)."
    )
    read_limit_s: float = _setting(30.0, "The longest that a read may take in MongoDB.")
    operation_limit_s: float = _setting(
        60.0, "The longest that a query or mutation may take, its waiting included."
    )
    max_executing: int = _setting(
        100,
        "Queries and mutations that execute at once, half of them at most of one caller; others "
        "wait. 0 here and below: no limit.",
    )
    max_waiting: int = _setting(
        1000, "How many may wait, 0 none; whoever comes next is told to try again (503)."
    )
    max_archive_waiting: int = _setting(
        1000,
        "Operations that wait for the archive or for memory at once, half of them at most of one "
        "caller.",
    )
    max_principal_operations: int = _setting(
        1000, "Operations at once, subscriptions among them, of one who is known."
    )
    max_connection_operations: int = _setting(100, "Operations at once on one WebSocket.")
    max_document_bytes: int = _setting(100_000, "Of a document: its length.")
    max_tokens: int = _setting(3000, "Of a document: names, numbers, texts and marks.")
    max_operations: int = _setting(20, "Of a document: its operations.")
    max_fields: int = _setting(2000, "Of a document: its fields, as often as fragments are spread.")
    max_depth: int = _setting(20, "Of an operation: fields within fields.")
    max_root_fields: int = _setting(50, "Of an operation: fields of the root; mutations, too.")
    max_aliases: int = _setting(100, "Of an operation: as often as fragments are spread.")
    max_directives: int = _setting(100, "Of an operation: as often as fragments are spread.")
    max_cost: int = _setting(
        10_000,
        "Of an operation: the documents and versions that it may have to read; sizes of pages "
        "within pages multiply, and a scan counts one for each 1,000 documents of its collection.",
    )
    max_values: int = _setting(
        100_000, "Of an operation: the values that its response may have, by the same count."
    )
    max_filter_conditions: int = _setting(
        500, "Of a filter: its conditions; an `in` list is one. They count in the cost, too."
    )
    max_subscription_conditions: int = _setting(
        50,
        "Of a subscription's filter: its conditions; twenty values of a list count as one more.",
    )
    max_principal_conditions: int = _setting(
        5000, "Conditions in the filters of all subscriptions of one who is known."
    )
    max_process_conditions: int = _setting(
        50_000,
        "Conditions in the filters of all subscriptions; those of callers without a name may have "
        "half of it.",
    )
    max_nested: int = _setting(100, "Of an argument or a variable: lists and objects in another.")
    max_list_items: int = _setting(20_000, "Of a variable: the items of a list in it.")
    max_variable_values: int = _setting(200_000, "Of all variables together: the values in them.")
    max_response_bytes: int = _setting(16 * 1024 * 1024, "Of a response: about its length.")
    max_read_bytes: int = _setting(
        64 * 1024 * 1024, "Of a query or mutation: the bytes that it reads from MongoDB."
    )
    max_process_read_bytes: int = _setting(
        512 * 1024 * 1024,
        "Of all queries and mutations together: about the memory that what they read takes. One "
        "may have a quarter of it; one that takes over 2 MB waits while four others do, two of "
        "the same caller.",
    )
    introspection: bool = _setting(
        True,
        "Whether the schema may be asked about, and is served at /schema.graphql and in examples.",
    )
    trusted_documents: Path | None = _setting(
        None,
        "A file of documents, as Apollo's persisted query manifest or as a map of names to "
        "documents, beside which nothing is executed.",
    )
    connect_s: float = _setting(10.0, "How long to look for MongoDB's primary.")
    shutdown_s: float = _setting(
        5.0, "How long requests under way may take once the process is told to stop."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "The least that is logged."
    )
    log_json: bool = _setting(False, "Whether log lines are JSON objects.")

    def with_files_read(self) -> Settings:
        """The same with what stands in files where it belongs.

        Raises:
            click.UsageError: a file cannot be read or is empty, or what it holds is given, too.
        """
        read: dict[str, Any] = {}
        for name in _IN_FILES:
            path = getattr(self, f"{name}_file")
            if path is not None:
                read[name] = _content(name, path, getattr(self, name))
                read[f"{name}_file"] = None
        return replace(self, **read)

    def database_name(self) -> str:
        """Raises click.UsageError where neither `--database` nor the URI names one that can be."""
        named = None if self.mongodb_uri is None else _database_of(self.mongodb_uri)
        name = self.database or named
        if not name:
            raise click.UsageError(
                "no database named: give --database NAME, or put it in the URI (mongodb://host/NAME)"
            )
        if name in _SYSTEM_DATABASES:
            raise click.UsageError(f"{name!r} is MongoDB's own database; give another --database")
        if _NOT_IN_NAMES.intersection(name) or len(name.encode()) > 63:
            raise click.UsageError(
                f"{name!r} is no name of a database: 63 bytes at most, "
                f"none of them one of {' '.join(sorted(_NOT_IN_NAMES - {' '}))} or a space"
            )
        return name

    def origins(self) -> frozenset[str]:
        """Raises click.UsageError where one is none."""
        named = [each.strip() for each in (self.allowed_origins or "").split(",") if each.strip()]
        try:
            return normalize_allowed_origins(named)
        except ValueError as exc:
            raise click.UsageError(f"--allowed-origins: {exc}") from exc

    def mongo_options(self) -> MongoOptions:
        return MongoOptions(
            driver=self.driver,
            read_limit_s=self.read_limit_s,
            server_selection_s=self.connect_s,
        )

    def limits(self) -> Limits:
        return Limits(**{each.name: getattr(self, each.name) for each in fields(Limits)})

    def limiter(self) -> ConcurrencyLimiter:
        return ConcurrencyLimiter(
            executing=self.max_executing,
            waiting=self.max_waiting,
            suspended=self.max_archive_waiting,
            limits=OperationLimits(
                read_bytes=self.max_read_bytes,
                process_read_bytes=self.max_process_read_bytes,
                cost=self.max_cost,
                values=self.max_values,
            ),
            per_principal=self.max_principal_operations,
            limit_s=self.operation_limit_s,
        )

    def subscription_filters(self) -> SubscriptionFilters:
        return SubscriptionFilters(
            per_subscription=self.max_subscription_conditions,
            per_caller=self.max_principal_conditions,
            in_all=self.max_process_conditions,
        )

    def persisted(self) -> Persisted:
        """Raises click.UsageError where the file of trusted documents cannot be used."""
        if self.trusted_documents is None:
            return AutomaticDocuments()
        try:
            return TrustedDocuments(read_manifest(self.trusted_documents))
        except ValueError as exc:
            raise click.UsageError(f"--trusted-documents: {exc}") from exc

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{each.name}={_shown(each.name, getattr(self, each.name))}" for each in fields(self)
        )
        return f"Settings({shown})"


_SYSTEM_DATABASES = {"admin", "config", "local"}
_NOT_IN_NAMES = frozenset(' "$*./:<>?\\|')


def _database_of(uri: str) -> str | None:
    # That a name's hosts are looked up is for whoever connects.
    plain = re.sub(r"^mongodb\+srv://", "mongodb://", uri)
    try:
        found = parse_uri(plain, validate=False, warn=False)["database"]
    except (PyMongoError, ValueError) as exc:
        raise click.UsageError(f"the MongoDB URI cannot be used: {redact_uri(exc, uri)}") from exc
    return None if found is None else str(found)


# Secrets, which a command line shows to everyone on the machine.
_IN_FILES = ("mongodb_uri", "sink_secrets")


def _content(name: str, path: Path, given: str | None) -> str:
    option = "--" + name.replace("_", "-")
    if given is not None:
        raise click.UsageError(f"give {option} or {option}-file, not both")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "it is not text"
        raise click.UsageError(f"{option}-file: {path} cannot be read: {reason}") from exc
    if not text:
        raise click.UsageError(f"{option}-file: {path} is empty")
    return text


def _shown(name: str, value: object) -> str:
    if name == "sink_secrets" and value is not None:
        return "***"
    if name != "mongodb_uri" or not isinstance(value, str):
        return repr(value)
    scheme, _, rest = value.partition("://")
    _, at, where = rest.rpartition("@")
    # Options may be secrets, too: tlsCertificateKeyFilePassword.
    hosts, mark, _ = where.partition("?")
    return repr(f"{scheme}://{'***@' if at else ''}{hosts}{'?…' if mark else ''}")
