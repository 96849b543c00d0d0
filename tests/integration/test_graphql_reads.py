"""The API on a real MongoDB: the number of commands of a query, and the fields that it reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import strawberry
from bson import Decimal128, ObjectId, Timestamp
from pymongo import MongoClient

from revstream.gql.engine.request.context import RequestContext
from revstream.gql.engine.request.mutation_services import prepare_mutation_services
from revstream.gql.engine.request.services import Services
from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.permissions import OPEN
from revstream.resolvers.admin.stream_status import Status
from revstream.resolvers.current.documents import Current
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.current.version_number_cache import VersionNumberCache
from revstream.resolvers.history.time_point import TimePointResolver
from revstream.resolvers.history.versions import VersionHistory
from revstream.resolvers.subscriptions.stream import Changes
from revstream.streams.archive.coverage import CoverageStore
from revstream.streams.archive.indexes import referring_fields
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Baseline, Checkpoints
from revstream.streams.coordination.lease import LeaseOptions, Leases
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording.set_aside import SetAsideEvents
from tests.integration.conftest import Commands
from tests.support.archives import Scribe, at

MODEL = read_model(
    """
    type Product @collection(name: "products") {
      id: ID!
      name: String!
      price: Decimal!
      stock: Int!
      dimensions: Dimensions
      supplierId: ID
      supplier: Supplier @reference(by: "supplierId")
      attributes: JSON
    }
    type Dimensions { width: Float! height: Float! }
    type Supplier @collection(name: "suppliers") {
      id: ObjectID!
      name: String!
      products: [Product!]! @referencedBy(field: "supplierId")
    }
    """
)
PRODUCT, SUPPLIER = MODEL.entity("Product"), MODEL.entity("Supplier")
SUPPLIERS = [ObjectId(f"{n:024d}") for n in range(50)]
TAG = "here"
TOKEN = resume_tokens.encode(resume_tokens.token_from_time(at(2, 2**31)), TAG)


@pytest.fixture(scope="module")
def schema() -> strawberry.Schema:
    return build_schema(MODEL)


async def context_of(mongo: Mongo, *scribes: Scribe) -> RequestContext:
    """Return a context of services whose archives are complete."""
    archives = {each.archive.collection: each.archive for each in scribes}
    checkpoints = Checkpoints(mongo)
    hub = Hub(list(archives), position=resume_tokens.token_from_time(Timestamp(1, 1)))
    progress = ArchiveProgress(checkpoints, hub, limit_s=0.2)
    for name in archives:
        progress.advance(Partition(name), resume_tokens.time_prefix(Timestamp(2**32 - 1, 0)))
        progress.note_baseline(Partition(name), Baseline(done=True))
    own_writes = OwnWrites(progress, VersionNumberCache(hub))
    services = Services(
        current=Current(mongo, archives, own_writes),
        history=VersionHistory(mongo, archives, own_writes),
        moments=TimePointResolver(mongo, archives, progress, TAG),
        live=Changes(mongo, archives, hub, progress),
        proposals=None,  # type: ignore[arg-type]
        status=Status(
            [],
            [],
            Leases(mongo, "me", LeaseOptions()),
            checkpoints,
            progress,
            SetAsideEvents(mongo),
            CoverageStore(mongo),
        ),
        editing=await prepare_mutation_services(
            mongo, MODEL, archives, progress, own_writes, repeat_window_s=60
        ),
    )
    return RequestContext(scope=OPEN, services=services, deployment=TAG)


async def filled(mongo: Mongo) -> RequestContext:
    """Write fifty products of fifty suppliers, with four versions each; suppliers are renamed
    later.
    """
    products, suppliers = Scribe(mongo, PRODUCT), Scribe(mongo, SUPPLIER)
    fields = referring_fields(MODEL, "products")
    products.archive = Archive(mongo, PRODUCT.collection, references=fields)
    for n, id_ in enumerate(SUPPLIERS):
        suppliers.write(id_, {"name": f"old {n}"}, at(0, n + 1))
        suppliers.write(id_, {"name": f"new {n}"}, at(9, n + 1))
        for version in range(4):
            document = {
                "version": version + 1,
                "name": f"n{n}",
                "price": Decimal128("1.50"),
                "stock": version,
                "dimensions": {"width": 1.0, "height": 2.0, "note": "x" * 100},
                "supplierId": id_,
                "attributes": {"long": "x" * 100},
            }
            products.write(f"p{n:02}", document, at(version + 1, n + 1))
    await products.save()
    await suppliers.save()
    return await context_of(mongo, products, suppliers)


QUERIES = {
    "supplier and last three versions": """
      query($n: Int) {
        products(first: $n) { nodes {
          name supplier { name }
          history(first: 3) { nodes { version author document { stock supplier { name } } } }
        } }
      }
    """,
    "everything there is": """
      query($n: Int) {
        products(first: $n) {
          nodes {
            version supplier { version products(first: 2) { nodes { id } totalCount } }
            state(version: 2) { version } then: state(asOf: {token: "TOKEN"}) { version }
            diff(from: 1) { path } blame { path version { author } }
            history(first: 2) { nodes { diff { path } previous { version } } totalCount }
          }
          totalCount resumeToken
        }
      }
    """.replace("TOKEN", TOKEN),
    "as of a moment": """
      query($n: Int) {
        productsAsOf(first: $n, asOf: {token: "TOKEN"}) {
          nodes { version document { name supplier { name } } diff { path } }
        }
      }
    """.replace("TOKEN", TOKEN),
    "back references as of a moment": """
      query($n: Int) {
        suppliersAsOf(first: $n, asOf: {token: "TOKEN"}) {
          nodes { document { name products(first: 2, orderBy: [{stock: DESC}]) {
            nodes { stock supplier { name products(first: 1) { totalCount } } } totalCount
          } } }
        }
      }
    """.replace("TOKEN", TOKEN),
    "back references of a history": """
      query($n: Int) {
        suppliers(first: $n) { nodes { history(first: 2) { nodes { version
          document { products(first: 2) { nodes { stock } } } } } } }
      }
    """,
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
async def test_the_number_of_commands_does_not_depend_on_the_number_of_documents(
    counted: Mongo, commands: Commands, schema: strawberry.Schema, query: str
) -> None:
    """Two products and fifty take the same (no N+1), once the coverage is known."""
    context = await filled(counted)
    await schema.execute(query, {"n": 50}, context)
    sent: list[list[str]] = []
    for n in (2, 50):
        with commands.counting() as started:
            result = await schema.execute(query, {"n": n}, context)
        assert result.errors is None
        assert result.data is not None
        (connection,) = result.data.values()
        assert len(connection["nodes"]) == n
        sent.append(sorted(started))
    assert sent[0] == sent[1]


async def test_nested_relations_have_the_cluster_time_of_the_root(
    mongo: Mongo, schema: strawberry.Schema
) -> None:
    """Current documents have new names, and as-of reads before the renaming old ones."""
    context = await filled(mongo)
    result = await schema.execute(
        "query($t: ResumeToken!) {"
        " now: products(first: 1) { nodes { supplier { name } } }"
        " then: productsAsOf(first: 1, asOf: {token: $t}) {"
        " nodes { version document { stock supplier { name } } } } }",
        {"t": TOKEN},
        context,
    )
    assert result.errors is None
    assert result.data == {
        "now": {"nodes": [{"supplier": {"name": "new 0"}}]},
        "then": {
            "nodes": [{"version": 2, "document": {"stock": 1, "supplier": {"name": "old 0"}}}]
        },
    }


async def test_back_references_have_the_cluster_time_of_the_root(
    mongo: Mongo, schema: strawberry.Schema
) -> None:
    """The documents that referred then, in their state of then, along any path."""
    context = await filled(mongo)
    result = await schema.execute(
        "query($t: ResumeToken!) { suppliersAsOf(first: 1, asOf: {token: $t}) { nodes { document {"
        " name products(where: {stock: {gte: 1}}) { totalCount pageInfo { hasNextPage } nodes {"
        " id stock supplier { name products { edges { cursor node { __typename stock } } } } }"
        " } } } } }",
        {"t": TOKEN},
        context,
    )
    assert result.errors is None
    assert result.data is not None
    [version] = result.data["suppliersAsOf"]["nodes"]
    [edge] = version["document"]["products"]["nodes"][0]["supplier"]["products"].pop("edges")
    assert edge["node"] == {"__typename": "ProductSnapshot", "stock": 1}
    assert version == {
        "document": {
            "name": "old 0",
            "products": {
                "totalCount": 1,
                "pageInfo": {"hasNextPage": False},
                "nodes": [
                    {"id": "p00@2", "stock": 1, "supplier": {"name": "old 0", "products": {}}}
                ],
            },
        }
    }


async def test_only_the_selected_fields_are_read(
    mongo: Mongo, schema: strawberry.Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields of embedded documents are projected, too."""
    context = await filled(mongo)
    read: list[Any] = []
    find = mongo.find

    async def watched(collection: str, *args: Any, **kwargs: Any) -> Any:
        found = await find(collection, *args, **kwargs)
        read.extend(found)
        return found

    monkeypatch.setattr(mongo, "find", watched)
    result = await schema.execute(
        "{ products(first: 1) { nodes { stock dimensions { width } } } }", context_value=context
    )
    assert result.errors is None
    # One more than the page size, for `hasNextPage`.
    assert read[0] == {"_id": "p00", "stock": 3, "dimensions": {"width": 1.0}}


FACTS = {
    "by": "Ada",
    "why": "because",
    "changed": ["stock"],
    "restoredFrom": 1,
    "draft": 7,
    "gap": True,
    "cut": {"versions": 1, "number": 1, "since": at(0), "at": datetime(2024, 5, 1, tzinfo=UTC)},
}
TOLD = {
    "author": "Ada",
    "comment": "because",
    "changedFields": ["stock"],
    "restoredFrom": 1,
    "fromDraft": 7,
    "gap": True,
}
SELECTED = {
    "document": "document { name stock }",
    "previous": "previous { version author }",
    "diff": "diff { path before after }",
    "cut": "cut { versions at }",
    "comments": "comments { nodes { text } }",
    "draft": "draft { number }",
}
PAGES = {
    "products(first: 5) { nodes { history(first: 2) { nodes { %s } } } }": ("products", "history"),
    'productsAsOf(first: 5, asOf: {token: "TOKEN"}) { nodes { %s } }': ("productsAsOf",),
    "productVersions(first: 60) { nodes { %s } }": ("productVersions",),
}


@pytest.mark.parametrize("page", PAGES)
async def test_a_field_of_a_version_does_not_depend_on_other_selected_fields(
    mongo: Mongo, schema: strawberry.Schema, client: MongoClient[dict[str, Any]], page: str
) -> None:
    """Only the selected fields of records are read."""
    context = await filled(mongo)
    versions = client[mongo.name]["products.versions"]
    versions.update_many({"doc": {"$in": ["p00", "p02"]}}, {"$set": FACTS})

    async def shown(selected: str) -> list[Any]:
        result = await schema.execute(
            f"{{ {page.replace('TOKEN', TOKEN) % selected} }}", None, context
        )
        assert result.errors is None
        found: list[Any] = [result.data]
        for name in PAGES[page]:
            found = [node for each in found for node in each[name]["nodes"]]
        return found

    fields = schema._schema.type_map["ProductVersion"].fields
    selections = {name: SELECTED.get(name, name) for name in fields}
    # Twice each: the second time as a compiled query.
    together = [await shown(" ".join(selections.values())) for _ in range(3)]
    assert together[0] == together[1] == together[2]
    said = [each for each in together[0] if each["documentId"] == "p00"]
    assert said
    for each in said:
        assert each.items() >= TOLD.items()
        assert (each["until"] is None) is (each["version"] == 4)
    for name, selected in selections.items():
        expected = [{name: each[name]} for each in together[0]]
        assert [await shown(selected) for _ in range(3)] == [expected] * 3


async def test_an_invalid_document_is_left_out_and_named_in_an_error(
    mongo: Mongo, schema: strawberry.Schema, client: MongoClient[dict[str, Any]]
) -> None:
    """Another program wrote it; the rest of the page is returned."""
    context = await filled(mongo)
    client[mongo.name]["products"].update_one({"_id": "p01"}, {"$set": {"price": "cheap"}})
    result = await schema.execute(
        "{ products(first: 3) { nodes { id price } } }", context_value=context
    )
    assert result.data is not None
    assert [each["id"] for each in result.data["products"]["nodes"]] == ["p00", "p02"]
    assert result.errors is not None
    assert result.errors[0].message == "products/p01: price: string 'cheap', expected Decimal"
