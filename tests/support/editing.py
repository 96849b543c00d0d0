"""A whole gateway in the test's process, over a small shop, and a client that sends mutations.

Tests of one module share it and are isolated by the ids of their documents.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import strawberry
from bson import CodecOptions
from pymongo import MongoClient
from pymongo.database import Database

from revstream.gql.engine.limits.document_limits import Limits
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.runtime.asgi_app import context_of
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.gateway import Gateway
from revstream.gql.runtime.lifecycle import open_gateway
from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from revstream.streams.archive.coverage import CoverageStore
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo

PATIENCE_S = 60.0

_BODY = """
  id: ID!
  sku: String! @unique
  name: String!
  price: Decimal!
  stock: Int!
  sold: Long
  tags: [String!]!
  dimensions: Dimensions
  attributes: JSON
  addedAt: DateTime @stored(as: "added_at")
"""
MODEL_TEXT = f"""
type Product @collection(name: "products") {{ {_BODY} }}
"The same, but its documents do not count their writes."
type Sample @collection(name: "samples", version: null) {{ {_BODY} }}
type Dimensions {{ width: Float! height: Float! note: String }}
type Gauge @collection(name: "gauges") {{ id: String! sequence: Long! @fence value: Float! }}
"""
MODEL = read_model(MODEL_TEXT)
PRODUCT = """
  id sku name price stock sold tags dimensions { width height note } attributes addedAt
"""
FIELDS = {"Product": PRODUCT, "Sample": PRODUCT, "Gauge": "id sequence value"}
VERSION = (
    "version operation author comment restoredFrom fromDraft traceparent gap changedFields "
    "resumeToken "
    "draft { author comment decidedBy decidedComment } comments { nodes { text } } "
    "diff { path kind before after }"
)
DRAFT = """
  number status basedOn basedOnDraft author comment publishedAs decidedBy decidedComment
  diff { path kind before after } comments { nodes { text author } }
"""

Row = dict[str, Any]


class Failed(Exception):
    """The response had errors; they are its arguments."""

    @property
    def code(self) -> str:
        """Return the code of the first error."""
        return str(self.args[0].extensions["code"])


@dataclass(kw_only=True, eq=False)
class Shop:
    """A running gateway and its database; `database` is the bare driver, for other programs."""

    gateway: Gateway
    schema: strawberry.Schema
    database: Database[Row]
    _ids: Any = field(default_factory=itertools.count)

    def __repr__(self) -> str:
        return "the shop"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print a short name: hypothesis would print all attributes."""
        printer.text(repr(self))

    async def ask(
        self, text: str, /, *, author: str | None = "ann", key: str | None = None, **variables: Any
    ) -> Row:
        """Execute an operation and return its data.

        Raises:
            Failed: the response has errors.
        """
        context = self.context(author, key)
        result = await self.schema.execute(text, variables, context)
        if result.errors:
            raise Failed(*result.errors)
        assert result.data is not None
        return result.data

    async def mutate(
        self, name: str, *, author: str | None = "ann", key: str | None = None, **given: Any
    ) -> Any:
        """Execute one mutation with the arguments `given` and return its whole result."""
        fields = self.schema._schema.mutation_type.fields  # type: ignore[union-attr]
        types = fields[name].args
        declared = ", ".join(f"${each}: {types[each].type}" for each in given)
        passed = ", ".join(f"{each}: ${each}" for each in given)
        selection = _selection(str(fields[name].type).rstrip("!"))
        text = f"mutation({declared}) {{ result: {name}({passed}) {{ {selection} }} }}"
        return (await self.ask(text, author=author, key=key, **given))["result"]

    def fresh_id(self) -> str:
        """Return an id that no document has had."""
        return f"made-{next(self._ids)}"

    async def create(self, entity: str = "Product", **more: Any) -> str:
        """Create a document at version 1 and return its id."""
        id_ = self.fresh_id()
        result = await self.mutate(f"create{entity}", id=id_, document={**lamp(id_), **more})
        assert result["__typename"] == f"{entity}Written", result
        return id_

    async def present(self, id_: str, entity: str = "Product") -> Row | None:
        """Return the current state."""
        found = await self.ask(
            f"query($id: ID!) {{ found: {entity.lower()}(id: $id) {{ version {PRODUCT} }} }}",
            id=id_,
        )
        document: Row | None = found["found"]
        return document

    async def history(self, id_: str, entity: str = "Product") -> list[Row]:
        """Return all versions of all authors, the oldest first."""
        await self.recorded()
        text = (
            "query($id: ID!) { found: "
            f"{entity.lower()}Versions(where: {{documentId: {{eq: $id}}}}, first: 200) "
            f"{{ nodes {{ {VERSION} document {{ {FIELDS[entity]} }} }} }} }}"
        )
        versions = (await self.ask(text, id=id_))["found"]["nodes"]
        for each in versions:
            each["comments"] = each["comments"]["nodes"]
        return list(reversed(versions))

    async def drafts(self, id_: str) -> list[Row]:
        """Return the drafts in the order in which they were proposed."""
        nodes = f"drafts(first: 100) {{ nodes {{ {DRAFT} }} }}"
        found = await self.ask(f"query($id: ID!) {{ product(id: $id) {{ {nodes} }} }}", id=id_)
        drafts = found["product"]["drafts"]["nodes"]
        for each in drafts:
            each["comments"] = each["comments"]["nodes"]
        return list(reversed(drafts))

    async def recorded(self) -> None:
        """Wait until all writes so far are in the archive."""
        now = resume_tokens.token_from_time(await self.gateway.mongo.operation_time())
        for entity in self.gateway.model.entities:
            await self.gateway.progress.wait(entity.collection, now, limit_s=30)

    async def streamed(self) -> None:
        """Wait until the gateway's change stream has all writes so far."""
        now = resume_tokens.token_from_time(await self.gateway.mongo.operation_time())
        await asyncio.wait_for(self.gateway.hub.wait_until(now), PATIENCE_S)

    @asynccontextmanager
    async def changes(
        self, text: str, /, **variables: Any
    ) -> AsyncIterator[AsyncGenerator[Row, None]]:
        """Open a subscription and yield its events: of writes from now on, or after a token."""
        # It begins where the stream is.
        await self.streamed()
        results: Any = await self.schema.subscribe(text, variables, self.context())

        async def data() -> AsyncGenerator[Row, None]:
            async with aclosing(results):
                async for each in results:
                    if each.errors:
                        raise Failed(*each.errors)
                    (event,) = each.data.values()
                    yield event

        async with aclosing(data()) as events:
            yield events

    def context(self, author: str | None = "ann", key: str | None = None) -> RequestContext:
        return context_of(self.gateway, principal=author, idempotency_key=key)


def lamp(sku: str) -> Row:
    """Return the content of a product for a mutation."""
    return {
        "sku": sku,
        "name": "Lamp",
        "price": "12.50",
        "stock": 5,
        "tags": ["new"],
        "attributes": {"volt": 230, "box": {"x": 1, "y": 2}},
        "addedAt": "2024-01-01T00:00:00.000Z",
    }


@asynccontextmanager
async def open_shop(
    client: MongoClient[Row],
    uri: str,
    name: str,
    settings: Settings | None = None,
    *,
    model: Model = MODEL,
    empty: bool = True,
    begun: bool = False,
    limits: Limits | None = None,
    # Other processes may use the CPU for long: the test must not fail for it.
    archive_wait_s: float = 30.0,
) -> AsyncIterator[Shop]:
    """Run a gateway over collections that are empty, to be snapshotted, or recorded already."""
    async with Mongo.connect(uri, name) as mongo:
        # Start history now, not at the oldest oplog entry: other tests fill the oplog.
        now = resume_tokens.token_from_time(await mongo.operation_time())
        for entity in () if begun else model.entities:
            place = Checkpoint(now, now, Baseline(done=empty))
            await CoverageStore(mongo).set_begin(entity.collection, None)
            if empty:
                await CoverageStore(mongo).set_known(entity.collection, None)
            await Checkpoints(mongo).save(f"recorder:{entity.collection}", place, fencing_token=0)
    settings = replace(settings or Settings(), archive_wait_s=archive_wait_s)
    codec = CodecOptions[Row](tz_aware=True)
    async with open_gateway(settings, model, uri, name) as gateway:
        yield Shop(
            gateway=gateway,
            schema=build_schema(model, limits),
            database=client.get_database(name, codec_options=codec),
        )
        assert not gateway.failures


def _selection(result: str) -> str:
    """Return a selection of all fields of the result type of a mutation."""
    for entity, fields in FIELDS.items():
        refused = f"""
          __typename ... on WriteError {{ message }} ... on InvalidDocument {{ path }}
          ... on VersionConflict {{ expectedVersion actualVersion
            current {{ nodeId ... on {entity} {{ version {fields} }} }} }}
        """
        if result == f"{entity}Write":
            written = f"version resumeToken {entity.lower()} {{ version {fields} }}"
            return f"""
              {refused} ... on AlreadyExists {{ path }} ... on {entity}Written {{ {written} }}
            """
        if result == f"{entity}Proposal":
            drafted = f"draft {{ {DRAFT} document {{ {fields} }} }}"
            return f"{refused} ... on {entity}Drafted {{ {drafted} }}"
    assert result == "Comment"
    return "id version draft author text replyTo"


def pick(versions: list[Row], *names: str) -> list[Any]:
    """Return some fields of each version, as a tuple where there are several."""
    rows = [tuple(each[name] for name in names) for each in versions]
    return [row[0] for row in rows] if len(names) == 1 else rows


def without(row: Mapping[str, Any], *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}
