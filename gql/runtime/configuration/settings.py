"""Every setting once: its default, its help, its option, its environment variable and its key in
a file.

`--read-limit-s` is `REVSTREAM_READ_LIMIT_S`, and so on. An unknown `REVSTREAM_…` name is an error:
a misspelt one would otherwise be silence. docs/reference/configuration.md is made from this class.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import click

from revstream.gql.engine.internals.strawberry import normalize_allowed_origins
from revstream.gql.runtime.configuration.database_name import database_name
from revstream.gql.runtime.configuration.secret_values import read_secret, without_password
from revstream.gql.runtime.configuration.setting_field import group
from revstream.streams.mongo.driver.client import MongoOptions

__all__ = ["PREFIX", "SECRETS", "Settings"]

PREFIX = "REVSTREAM_"
SECRETS = frozenset({"mongodb_uri", "sink_secrets", "jwt_keys"})
"""Settings whose values may hold secrets."""

_SCHEMA = Path("schema.graphql")


_general, _mongodb, _http = group("General"), group("MongoDB"), group("HTTP")
_recording, _subscriptions = group("Recording"), group("Subscriptions")
_listeners = group("Listeners")
_access, _limits, _log = group("Access"), group("Limits"), group("Log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Built once, from the command line and the environment; printed without the URI's password and
    without the sinks' secrets.
    """

    config: Path | None = _general(
        None,
        "TOML file with settings, named as the options are. Options and variables have "
        "precedence over it.",
    )
    schema: Path = _general(_SCHEMA, "File of the model: the collections and their types.")
    mongodb_uri: str | None = _mongodb(None, "MongoDB URI of the replica set.")
    mongodb_uri_file: Path | None = _mongodb(
        None, "File with the MongoDB URI, for secrets of containers."
    )
    embedded: Path | None = _mongodb(
        None, "Run an embedded MongoDB with its data in this directory."
    )
    database: str | None = _mongodb(None, "Name of the database; without it, the one in the URI.")
    host: str = _http("127.0.0.1", "Address to listen on.")
    port: int = _http(8000, "Port to listen on; 0 for a free one.")
    management_port: int | None = _http(
        None,
        "Port for /livez, /readyz and /metrics, which the API's port then does not serve; 0 for a "
        "free one. The only port of `record`.",
    )
    management_host: str | None = _http(
        None, "Address to listen on for the management port; without it, that of --host."
    )
    allowed_origins: str | None = _http(
        None,
        "Origins of other pages that may use the API, separated by commas, such as "
        "https://app.example.org; * for any. Without it, only pages of this address.",
        separated=True,
    )
    allowed_hosts: str | None = _http(
        None,
        "Accepted values of the Host header, separated by commas, such as "
        "app.example.org; * for any. Without it, any; but only localhost if --host is a "
        "loopback address.",
        separated=True,
    )
    body_bytes: int = _http(1024 * 1024, "Maximum length of an HTTP request body, in bytes.")
    heartbeat_s: float = _http(
        12.0, "Maximum silence of an HTTP stream, in seconds, so that proxies keep it open."
    )
    relay: bool = _general(
        False,
        "Name ids for Relay: `id` is unique over all types, and a document's own id is "
        "`documentId` (docs/how-to/caches.md).",
    )
    record: bool = _recording(True, "Compete for the leases of the recorders.")
    listeners: str | None = _listeners(
        None,
        "Listeners of your own, as module:Class, separated by commas (docs/how-to/listeners.md).",
        separated=True,
    )
    sink_secrets: str | None = _listeners(
        None,
        "Secrets that sign deliveries, whsec_… or URL=whsec_…, separated by commas "
        "(docs/how-to/webhooks.md). Best set in the environment.",
        separated=True,
    )
    sink_secrets_file: Path | None = _listeners(None, "File with the secrets of sinks.")
    images: bool = _mongodb(True, "Let MongoDB store the images before and after each write.")
    experimental_sharded: bool = _mongodb(
        False,
        "Serve a sharded cluster, although some changes are not supported there; "
        "`revstream doctor` lists them.",
    )
    driver: Literal["motor", "pymongo"] = _mongodb("motor", "MongoDB driver.")
    wire: bool = _mongodb(
        True,
        "Read over wire connections, which take less processor time; otherwise everything uses "
        "the driver.",
    )
    ring_events: int = _subscriptions(
        10_000,
        "Maximum number of events per collection in the ring buffer, for clients that reconnect.",
        "events",
    )
    ring_bytes: int = _subscriptions(
        64 * 1024 * 1024, "Maximum memory of a collection's ring buffer, in bytes."
    )
    backlog_events: int = _subscriptions(
        5000,
        "Maximum number of events that wait for one subscriber; over it, the subscription ends.",
        "events",
    )
    backlog_bytes: int = _subscriptions(
        64 * 1024 * 1024, "Approximate maximum memory of these events, in bytes."
    )
    sockets: int = _http(
        10_000,
        "Maximum number of open WebSockets; further ones are rejected with 503.",
        "connections",
    )
    connections: int = _http(
        5000,
        "Maximum number of open HTTP connections, streams included; over it, an idle one "
        "is closed, or a request is rejected with 503.",
        "connections",
    )
    connections_bytes: int = _http(
        256 * 1024 * 1024,
        "Maximum size of the buffers of all HTTP connections, in bytes; over it, those "
        "with the largest buffers are closed.",
    )
    sockets_bytes: int = _http(
        128 * 1024 * 1024,
        "Maximum size of the buffers of all WebSockets, in bytes; over it, those with the "
        "largest buffers are closed.",
    )
    socket_message_bytes: int = _http(
        1024 * 1024,
        "Maximum length of a WebSocket message, in bytes; a longer one closes the connection.",
    )
    socket_stalled_s: float = _http(
        20.0, "Seconds after which a connection is closed if its client reads nothing."
    )
    quiet_s: float = _subscriptions(
        20.0,
        "Maximum seconds until a subscriber without events gets a newer resume token; "
        "some get it after half of that.",
    )
    lease_s: float = _recording(10.0, "Seconds that a recorder's lease lasts without renewal.")
    archive_wait_s: float = _recording(
        5.0, "Seconds that a read of history waits for the recorder."
    )
    author_header: str | None = _access(
        None,
        "Request header with the name of the author. It is not verified: only for "
        "gateways behind a proxy that sets it.",
    )
    jwt_keys: str | None = _access(
        None, "JWKS with the keys of tokens: a URL, or a file (docs/how-to/authentication.md)."
    )
    jwt_keys_s: float = _access(
        300.0, "Seconds after which the JWKS is read again; a withdrawn key stays valid that long."
    )
    jwt_algorithms: str = _access(
        "RS256", "Accepted algorithms of tokens, separated by commas.", separated=True
    )
    jwt_issuer: str | None = _access(None, "Required `iss` of tokens.")
    jwt_audience: str | None = _access(None, "Required `aud` of tokens.")
    jwt_leeway_s: float = _access(
        5.0, "Accepted difference to the issuer's clock in `exp` and `nbf`, in seconds."
    )
    jwt_roles: str = _access(
        "roles", "Claim with the caller's roles; `realm_access.roles` for a nested one."
    )
    api_keys: Path | None = _access(
        None, "File with hashed API keys and their principals (docs/how-to/authentication.md)."
    )
    anonymous: bool = _access(
        False,
        "Accept requests without authentication, as callers without roles, although there "
        "is authentication or `@access` in the model.",
    )
    admin_role: str | None = _access(
        None, "Role that may list and disconnect sessions under /admin."
    )
    repeat_window_s: float = _general(
        86_400.0, "Seconds for which a mutation may be repeated under its idempotency key."
    )
    retention_every_s: float = _recording(
        3600.0, "Seconds between two deletions of versions that the model does not keep (`keep`)."
    )
    read_limit_s: float = _mongodb(30.0, "Maximum duration of a read in MongoDB, in seconds.")
    operation_limit_s: float = _limits(
        60.0, "Maximum duration of a query or mutation, in seconds, waiting included."
    )
    max_executing: int = _limits(
        100,
        "Maximum number of concurrent queries and mutations, half of it for one caller; "
        "others wait. 0 here and below: no limit.",
        "operations",
    )
    max_waiting: int = _limits(
        1000,
        "Maximum number of operations that wait, 0 for none; further ones are rejected with 503.",
        "operations",
    )
    max_archive_waiting: int = _limits(
        1000,
        "Maximum number of operations that wait for the archive or for memory, half of it "
        "for one caller.",
        "operations",
    )
    max_principal_operations: int = _limits(
        1000,
        "Maximum number of concurrent operations of one principal, subscriptions included.",
        "operations",
    )
    max_connection_operations: int = _limits(
        100, "Maximum number of concurrent operations on one WebSocket.", "operations"
    )
    max_document_bytes: int = _limits(100_000, "GraphQL document: maximum length, in bytes.")
    max_tokens: int = _limits(3000, "GraphQL document: maximum number of tokens.", "tokens")
    max_operations: int = _limits(
        20, "GraphQL document: maximum number of operations.", "operations"
    )
    max_fields: int = _limits(
        2000, "GraphQL document: maximum number of fields, with fragments expanded.", "fields"
    )
    max_depth: int = _limits(20, "Operation: maximum depth of nested fields.", "levels")
    max_root_fields: int = _limits(
        50, "Operation: maximum number of root fields, mutations included.", "fields"
    )
    max_aliases: int = _limits(
        100, "Operation: maximum number of aliases, with fragments expanded.", "aliases"
    )
    max_directives: int = _limits(
        100, "Operation: maximum number of directives, with fragments expanded.", "directives"
    )
    max_cost: int = _limits(
        10_000,
        "Operation: maximum number of documents and versions to read; sizes of nested "
        "pages multiply, and a scan costs one per 1,000 documents of its collection.",
        "documents and versions",
    )
    max_values: int = _limits(
        100_000,
        "Operation: maximum number of values in the response, counted in the same way.",
        "values",
    )
    max_filter_conditions: int = _limits(
        500,
        "Filter: maximum number of conditions; an `in` list is one. They count in the cost, too.",
        "conditions",
    )
    max_subscription_conditions: int = _limits(
        50,
        "Subscription: maximum number of conditions in its filter; twenty values of a "
        "list count as one more.",
        "conditions",
    )
    max_principal_conditions: int = _limits(
        5000,
        "Maximum number of conditions in the filters of all subscriptions of one principal.",
        "conditions",
    )
    max_process_conditions: int = _limits(
        50_000,
        "Maximum number of conditions in the filters of all subscriptions; half of it for "
        "anonymous callers.",
        "conditions",
    )
    max_nested: int = _limits(
        100, "Argument or variable: maximum depth of nested lists and objects.", "levels"
    )
    max_list_items: int = _limits(20_000, "Variable: maximum number of items in a list.", "items")
    max_variable_values: int = _limits(
        200_000, "Variables: maximum number of values in all of them.", "values"
    )
    max_response_bytes: int = _limits(
        16 * 1024 * 1024, "Response: approximate maximum length, in bytes."
    )
    max_read_bytes: int = _limits(
        64 * 1024 * 1024, "Query or mutation: maximum number of bytes to read from MongoDB."
    )
    max_process_read_bytes: int = _limits(
        512 * 1024 * 1024,
        "Approximate maximum memory of all concurrent reads, in bytes. One operation may "
        "use a quarter of it; one with over 2 MB waits while four others run, two of the "
        "same caller.",
    )
    introspection: bool = _general(
        True, "Allow introspection, and serve the schema at /schema.graphql."
    )
    trusted_documents: Path | None = _general(
        None,
        "File of trusted documents, as Apollo's persisted query manifest or as a map of "
        "names to documents; no others are executed.",
    )
    connect_s: float = _mongodb(10.0, "Maximum seconds to find MongoDB's primary.")
    shutdown_s: float = _http(5.0, "Maximum seconds for running requests at shutdown.")
    log_level: Literal["debug", "info", "warning", "error"] = _log(
        "info", "Minimum level of log lines."
    )
    log_json: bool = _log(False, "Write log lines as JSON objects.")
    tracing: bool = _log(
        False,
        "Record spans with OpenTelemetry, which the variables OTEL_… configure; requires the extra "
        "otel (docs/how-to/trace.md).",
    )

    def with_files_read(self) -> Settings:
        """The same with what stands in files where it belongs.

        Raises:
            click.UsageError: a file cannot be read or is empty, or what it holds is given, too.
        """
        read: dict[str, Any] = {}
        for name in _IN_FILES:
            path = getattr(self, f"{name}_file")
            if path is not None:
                read[name] = read_secret(name, path, getattr(self, name))
                read[f"{name}_file"] = None
        return replace(self, **read)

    def database_name(self) -> str:
        """Name of the database.

        Raises:
            click.UsageError: Neither `--database` nor the URI has a valid name.
        """
        return database_name(self.database, self.mongodb_uri)

    def origins(self) -> frozenset[str]:
        """Origins of other pages that may use the API.

        Raises:
            click.UsageError: One of them is not an origin.
        """
        named = [each.strip() for each in (self.allowed_origins or "").split(",") if each.strip()]
        try:
            return normalize_allowed_origins(named)
        except ValueError as exc:
            raise click.UsageError(f"--allowed-origins: {exc}") from exc

    def mongo_options(self) -> MongoOptions:
        return MongoOptions(
            driver=self.driver,
            wire=self.wire,
            read_limit_s=self.read_limit_s,
            server_selection_s=self.connect_s,
        )

    def shown(self, name: str) -> Any:
        """Return the value of a setting, without what is secret in it."""
        value = getattr(self, name)
        if name not in SECRETS or not isinstance(value, str):
            return value
        if name == "mongodb_uri":
            return without_password(value)
        if name == "jwt_keys" and ("://" in value or Path(value).is_file()):
            return value
        return "***"

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={self.shown(each.name)!r}" for each in fields(self))
        return f"Settings({shown})"


# Secrets, which a command line shows to everyone on the machine.
_IN_FILES = ("mongodb_uri", "sink_secrets")
