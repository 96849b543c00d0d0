"""`revstream init`: all documents of a database fit the model that is made from it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bson import Decimal128, Int64, ObjectId
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp
from hypothesis import HealthCheck, given
from hypothesis import settings as tried
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.gql.cli.init import infer_schema
from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from revstream.model.definition import EnumType, Model, Scalar
from revstream.model.inference.accepted_names import accepted_text
from revstream.model.inference.draft_builder import build_draft
from revstream.resolvers.admin.data_sample import examine_data
from revstream.streams.core.errors import Unsuitable
from revstream.streams.maintenance.sampling.sampler import sample_database
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.client import MongoOptions
from tests.support.gateway import running_gateway
from tests.support.habits import hand_made, spring_data
from tests.support.whole_documents import served_ids

Client = MongoClient[dict[str, Any]]
HABITS = {"Spring Data": spring_data, "by hand": hand_made}

# Some are taken by the API, some are no names in GraphQL, some cannot be queried.
NAMES = st.sampled_from(
    ["a", "b", "id", "version", "history", "order-no", "größe", "2nd", "and", "state", "x.y", "7"]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(["", "open", "in-progress", "x" * 50]),
    st.integers(-5, 5),
    st.sampled_from([Int64(3), Int64(2**40), Int64(2**60)]),
    st.sampled_from([1.5, 2.0, float("nan"), float("inf")]),
    st.just(Decimal128("1.10")),
    st.builds(datetime, st.just(2026), st.just(1), st.integers(1, 31), tzinfo=st.just(UTC)),
    st.just(datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
    st.just(ObjectId(b"x" * 12)),
    st.sampled_from(
        [
            {"type": "Point", "coordinates": each}
            for each in ([1.5, 2], [Int64(1), -2.5], [1.0, 2.0, 3.0], [1.0, 91.0], [1.0], ["1", 2])
        ]
    ),
)
TAGS = st.sampled_from(["p", "q", "com.example.Order", "x" * 201, None, 1])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(NAMES, inner, max_size=3),
        # A union, in most cases.
        st.builds(
            lambda tag, fields, more: {"kind": tag, **fields, **({tag: 1} if more else {})},
            TAGS.filter(lambda each: isinstance(each, str)),
            st.dictionaries(NAMES, inner, max_size=2),
            st.booleans(),
        ),
        st.builds(lambda tag, fields: {**fields, "__t": tag}, TAGS, st.dictionaries(NAMES, inner)),
    ),
    max_leaves=6,
)
IDS = st.one_of(
    st.integers(0, 99),
    st.text("xy", max_size=3),
    st.builds(ObjectId),
    st.integers(2**40, 2**62).map(Int64),
)
DOCUMENTS = st.lists(
    st.tuples(
        IDS,
        st.dictionaries(NAMES, VALUES, max_size=4)
        # An interface, in most cases.
        | st.builds(
            lambda tag, fields, more: {**fields, "_class": tag, **({tag: 1} if more else {})},
            TAGS.filter(lambda each: isinstance(each, str)),
            st.dictionaries(NAMES, VALUES, max_size=2),
            st.booleans(),
        ),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda each: str(each[0]),
)


async def inferred(uri: str, database: str, *, size: int | None = None) -> str:
    """Return the text for a database, and check that no document differs from it."""
    async with Mongo.connect(uri, database, options=MongoOptions()) as mongo:
        found = await sample_database(mongo, size=size, only=[], report=lambda *_: None)
        if not found.collections:
            return ""
        text = accepted_text(build_draft(found.collections, found.relations), [])
        findings = await examine_data(mongo, read_model(text))
        assert [each for each in findings if each.level != "ok"] == [], text
    return text


@pytest.fixture
def database(client: Client) -> Iterator[str]:
    name = f"inferred_{uuid4().hex[:8]}"
    yield name
    client.drop_database(name)


@given(documents=DOCUMENTS, size=st.integers(1, 4))
@tried(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_document_fits_the_model_that_a_sample_gives(
    mongo_uri: str,
    client: Client,
    database: str,
    documents: list[tuple[Any, dict[str, Any]]],
    size: int,
) -> None:
    """The documents that are not sampled widen the types."""
    client[database]["things"].delete_many({})
    client[database]["things"].insert_many({"_id": id_, **each} for id_, each in documents)
    asyncio.run(inferred(mongo_uri, database, size=size))


def read(text: str) -> Model:
    return read_model(text)


@pytest.mark.parametrize(
    ("numbers", "counts"),
    [
        ([2] * 10, False),
        ([2] * 9, True),
        ([1] * 10, True),
        ([0] * 10, True),
        ([1, 2, *[1] * 8], True),
        ([1, None, *[1] * 8], False),
        ([1, "2", *[1] * 8], False),
    ],
    ids=str,
)
def test_a_version_that_may_count_changes_is_the_counter(
    mongo_uri: str, client: Client, database: str, numbers: list[Any], counts: bool
) -> None:
    """Another number is data under another name; the text says what happens to it."""
    client[database]["bills"].insert_many(
        {"_id": n, "name": "a", "version": each} for n, each in enumerate(numbers)
    )
    text = asyncio.run(inferred(mongo_uri, database))
    bill = read(text).entity("Bill")
    assert (bill.version is not None) is counts
    assert ("the gateway's writes increase it" in text) is counts
    stored = {each.stored: each.name for each in bill.fields}
    assert stored.get("version") == (None if counts else "billVersion")


@pytest.mark.parametrize(
    "keys",
    [
        ["2026-01-01", "2026-01-02"],
        ["2026-01"],
        ["2026Q1"],
        ["2026-01-01T10:00:00Z"],
        ["6b0b00000000000000000001"],
        ["0d5b1f52-0c45-4f0a-9c8b-2f5b6c1d7e8f"],
    ],
    ids=str,
)
def test_keys_that_are_dates_or_ids_are_data(
    mongo_uri: str, client: Client, database: str, keys: list[str]
) -> None:
    """The next key would not be in the model. A name may begin with a digit."""
    documents = [{"days": dict.fromkeys(keys, 1), "flags": {"2fa": True}} for _ in range(3)]
    client[database]["devices"].insert_many(documents)
    model = read(asyncio.run(inferred(mongo_uri, database)))
    types = {each.stored: each.type for each in model.entity("Device").fields}
    assert (types["days"], types["flags"]) == (Scalar.JSON, "DeviceFlag")


def test_an_unknown_collection_is_refused_with_the_known_ones(
    mongo_uri: str, client: Client, database: str
) -> None:
    client[database]["sales"].insert_one({"n": 1})
    with pytest.raises(Unsuitable, match="sale: not in the database, which has sales;"):
        asyncio.run(
            infer_schema(Settings(), mongo_uri, database, lambda *_: None, size=9, only=["sale"])
        )


def test_a_field_that_tells_shapes_apart_makes_a_union(
    mongo_uri: str, client: Client, database: str
) -> None:
    """Alone and in lists; a name that the API takes is another one in all members."""
    payments: list[dict[str, Any]] = [
        {"_class": "com.example.Card", "number": "1", "id": 1},
        {"_class": "com.example.Transfer", "iban": "DE1", "id": 2, "note": "x"},
        {"_class": "com.example.Cash"},
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "a"},
        {"type": "image", "text": 7, "size": {"w": 1}},
    ]
    client[database]["orders"].insert_many(
        {"_id": n, "payment": payments[n % 3], "blocks": blocks[: n % 3], "place": {"type": "a"}}
        for n in range(12)
    )
    text = asyncio.run(inferred(mongo_uri, database, size=3))
    model = read(text)
    payment, block = model.embedded("OrderPayment"), model.embedded("OrderBlock")
    assert payment.discriminator is not None
    assert block.discriminator is not None
    assert (payment.discriminator.name, payment.discriminator.stored) == ("class", "_class")
    names = {each.value: each.type for each in payment.discriminator.members}
    assert names == {
        "com.example.Card": "Card",
        "com.example.Transfer": "Transfer",
        "com.example.Cash": "Cash",
    }
    assert [(each.name, each.required) for each in model.embedded("Card").fields[1:]] == [
        ("number", True),
        ("orderPaymentId", True),
    ]
    assert [each.name for each in model.embedded("Transfer").fields[1:]] == [
        "iban",
        "orderPaymentId",
        "note",
    ]
    assert len(model.embedded("Cash").fields) == 1
    assert {each.value for each in block.discriminator.members} == {"text", "image"}
    assert model.embedded("OrderPlace").discriminator is None


def test_documents_of_several_classes_make_an_interface(
    mongo_uri: str, client: Client, database: str
) -> None:
    """It has the fields that all have in common; a field has one name in all types."""
    zoo = client[database]
    people, animals = ([ObjectId() for _ in range(20)] for _ in range(2))
    zoo["people"].insert_many({"_id": each, "name": "Ann"} for each in people)
    zoo["animals"].create_index("name", unique=True)
    zoo["animals"].create_index("chip", unique=True, sparse=True)
    own: list[Any] = [
        {"_class": "org.zoo.Dog", "chip": 1, "vet": 1, "history": "a", "size": {"cm": 1}},
        {"_class": "org.zoo.Cat", "lives": 7, "vet": 1, "size": {"kg": 1.5}},
        {"_class": "org.zoo.Fish"},
    ]
    for n, id_ in enumerate(animals):
        shared = {"_id": id_, "name": f"n{n}", "owner": people[n], "blame": n, "version": 1}
        found = {**shared, **own[n % 3]}
        found |= {name: value for name, value in (("chip", n), ("vet", people[n])) if name in found}
        zoo["animals"].insert_one(found)
    zoo["toys"].insert_many({"animalId": animals[n]} for n in range(20))
    text = asyncio.run(inferred(mongo_uri, database, size=5))
    shared_fields = (
        "  id: ObjectID!\n  name: String!{unique}\n  ownerId: ID!{stored}\n  owner: Person{by}\n"
        "  animalBlame: Int!{blame}\n"
    )
    interface = shared_fields.format(
        unique=" @unique",
        stored=' @stored(as: "owner")',
        by=' @reference(by: "ownerId")',
        blame=' @stored(as: "blame")',
    )
    repeated = shared_fields.format(unique="", stored="", by="", blame="")
    toys = "  toys: [Toy!]!"
    head = '@collection(name: "animals") @discriminator(field: "class", storedAs: "_class")'
    assert f"interface Animal {head} {{\n{interface}{toys} @referencedBy(" in text, text
    for own_fields in (
        'Dog implements Animal @variant(value: "org.zoo.Dog") {\n'
        + repeated
        + f"{toys}\n  chip: Int!\n"
        '  vetId: ID! @stored(as: "vet")\n  vet: Person @reference(by: "vetId")\n'
        '  animalHistory: String! @stored(as: "history")\n  size: DogSize!\n'
        '  # left out: a unique index over "chip", which not all types have\n}',
        'Cat implements Animal @variant(value: "org.zoo.Cat") {\n'
        + repeated
        + f"{toys}\n  lives: Int!\n"
        '  vetId: ID! @stored(as: "vet")\n  vet: Person @reference(by: "vetId")\n'
        "  size: CatSize!\n}",
        'Fish implements Animal @variant(value: "org.zoo.Fish") {\n' + repeated + f"{toys}\n}}",
    ):
        assert f"type {own_fields}" in text, text
    assert '  animals: [Animal!]! @referencedBy(field: "ownerId")' in text
    animal = read(text).entity("Animal")
    assert [each.name for each in read(text).variants(animal)] == ["Animal", "Cat", "Dog", "Fish"]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("_class", [("a.Dog", {"breed": 1}), ("b.Dog", {"lives": 1})]),
        ("_class", [("a.Dog", {"breed": 1}), ("a.Cat", {"breed": 2})]),
        ("_class", [("a.Dog", {"breed": 1}), (None, {"lives": 1})]),
        ("kind", [("dog", {"breed": 1}), ("cat", {"lives": 1}), ("cat", {})]),
        ("kind", [("dog", {"breed": 1}), *[("cat", {"lives": 1})] * 9]),
        ("name", [("dog", {"breed": 1}), ("cat", {"lives": 1})]),
        ("contentType", [("dog", {"breed": 1}), ("cat", {"lives": 1})]),
        ("type", [("dog", {"breed": 1}), ("cat", {"lives": 1})]),
        ("_class", [("a.Dog", {"__v": 0, "_change": 1, "a.b": 1, "x": None}), ("a.Cat", {})]),
    ],
    ids=[
        "one class in two packages",
        "one shape",
        "no class",
        "often missing",
        "few of a type",
        "another field",
        "a word in the name",
        "a reference",
        "fields of no model",
    ],
)
def test_documents_of_no_certain_types_have_one_type(
    mongo_uri: str, client: Client, database: str, field: str, values: list[tuple[Any, Any]]
) -> None:
    """A document of another type would not be served."""
    client[database]["animals"].insert_many(
        {**own, "_id": n, "all": 1, **({} if text is None else {field: text})}
        for n, (text, own) in enumerate((values * 40)[:80])
    )
    client[database]["types"].insert_many([{"_id": "dog", "n": 1}, {"_id": "cat", "n": 1}])
    text = asyncio.run(inferred(mongo_uri, database))
    assert "interface" not in text
    assert read(text).entity("Animal").collection == "animals"


def test_members_have_each_field_that_one_of_their_documents_has(
    mongo_uri: str, client: Client, database: str
) -> None:
    """Fields of other members, a validator and empty lists change the members that they concern."""
    zoo = client[database]
    phases = {"enum": ["open", "closed", "in-progress"]}
    schema = {"bsonType": "object", "properties": {"phase": phases}}
    zoo.create_collection("animals", validator={"$jsonSchema": schema})
    zoo["animals"].create_index([("breed", "text")])
    zoo["animals"].create_index([("at", "2dsphere")])
    people = [ObjectId() for _ in range(20)]
    zoo["people"].insert_many({"_id": each, "n": 1} for each in people)
    here = {"type": "Point", "coordinates": [1.5, 2.5]}
    own: list[Any] = [
        {
            "__t": "Dog",
            "type": "a",
            "breed": "x",
            "phase": "open",
            "vetIds": people,
            "at": here,
        },
        {"__t": "Cat", "type": "b", "lives": 1, "vetIds": [], "at": here, "team_a": people[0]},
        {"__t": "Fish", "type": "c", "team_a": people[0]},
    ]
    zoo["animals"].insert_many({"_id": n, **own[n % 3]} for n in range(300))
    for n, each in enumerate(people):
        several = [n * 3 + 1, n * 3 + 2, n * 3 + 121, n * 3 + 122]
        zoo["animals"].update_many({"_id": {"$in": several}}, {"$set": {"team_a": each}})
    zoo["animals"].update_one({"_id": 297}, {"$set": {"lives": 3}})
    text = asyncio.run(inferred(mongo_uri, database, size=2))
    model = read(text)
    dog, cat, fish = (
        next(each for each in model.variants(model.entity("Animal")) if each.name == name)
        for name in ("Dog", "Cat", "Fish")
    )
    assert {each.name for each in dog.fields} >= {"breed", "phase", "vetIds", "lives", "at"}
    lives = dog.field("lives")
    assert lives is not None
    assert (lives.type, lives.required) == (Scalar.INT, False)
    phase = dog.field("phase")
    assert phase is not None
    assert isinstance(phase.type, EnumType)
    assert phase.type.values == ("OPEN", "CLOSED", "IN_PROGRESS")
    assert [each.name for each in dog.references] == ["vets"]
    assert [(each.name, each.by) for each in cat.references] == [("teamA", "teamAId")]
    assert [(each.name, each.by) for each in fish.references] == [("teamA", "teamAId")]
    vets = cat.field("vetIds")
    assert vets is not None
    assert vets.type is Scalar.JSON
    assert "# left out: a text index over fields which not all types have\n" in text
    assert '# left out: an index over "at", which not all types have\n' in text


def test_plain_fields_tell_types_apart_where_documents_are_many(
    mongo_uri: str, client: Client, database: str
) -> None:
    """With few of them, what is always there may be so by chance."""
    own: list[Any] = [{"kind": "dog", "breed": "x"}, {"kind": "cat", "lives": 1}]
    client[database]["few"].insert_many({"_id": n, **own[n % 2]} for n in range(8))
    client[database]["animals"].insert_many({"_id": n, **own[n % 2]} for n in range(40))
    text = asyncio.run(inferred(mongo_uri, database))
    assert 'interface Animal @collection(name: "animals", version: null) @discrim' in text
    assert text.count("interface") == 1


def test_relations_enums_and_unique_fields_are_found(
    mongo_uri: str, client: Client, database: str
) -> None:
    """Names of library habits are those of GraphQL, and the other direction is there."""
    shop = client[database]
    users = [ObjectId() for _ in range(40)]
    shop["users"].create_index("email", unique=True)
    shop["users"].insert_many(
        {"_id": each, "email": f"{n}@example.org", "role": "admin" if n % 2 else "reader", "__v": 0}
        for n, each in enumerate(users)
    )
    shop["blog_posts"].insert_many(
        {
            "author": users[n],
            "editor_id": users[-n],
            "tags": users[n : n + 3],
            "state": "in-progress",
        }
        for n in range(40)
    )
    shop["categories"].insert_many({"_id": n, "parentId": n - 1 if n else None} for n in range(5))
    text = asyncio.run(inferred(mongo_uri, database))
    model = read(text)
    post = model.entity("BlogPost")
    assert [(each.name, each.target, each.by) for each in post.references] == [
        ("author", "User", "authorId"),
        ("editor", "User", "editorId"),
        ("tags", "User", "tagIds"),
    ]
    assert 'tags: [User!]! @reference(by: "tagIds")' in text
    author = post.field("authorId")
    assert author is not None
    assert author.stored == "author"
    assert author.required
    user = model.entity("User")
    assert [each.name for each in user.back_references] == [
        "blogPostsByAuthor",
        "blogPostsByEditor",
        "blogPostsByTags",
    ]
    email = user.field("email")
    assert email is not None
    assert email.unique
    role = user.field("role")
    assert role is not None
    assert role.type_name == "UserRole"
    assert "__v" not in {each.stored for each in user.fields}
    assert [each.name for each in model.entity("Category").references] == ["parent"]


def test_types_of_one_name_get_different_names(
    mongo_uri: str, client: Client, database: str
) -> None:
    """The lines of an order beside a collection of order lines, and names that GraphQL has."""
    shop = client[database]
    shop["orders"].insert_many(
        {"lines": [{"sku": "a"}], "status": "open" if n % 2 else "done"} for n in range(40)
    )
    shop["order_lines"].insert_one({"q": 1})
    shop["order_statuses"].insert_one({"q": 1})
    shop["strings"].insert_one({"text": "a", "string": {"string": "b"}})
    shop["nodes"].insert_one({"node": {"x": "b"}, "record": {"y": 1}})
    model = read(asyncio.run(inferred(mongo_uri, database)))
    assert {each.name: each.type_name for each in model.entity("Order").fields} == {
        "id": "ID",
        "lines": "OrderLines",
        "status": "OrderStatus2",
    }
    assert [each.name for each in model.embedded("OrderLines").fields] == ["sku"]
    assert {each.name: each.type_name for each in model.entity("String2").fields} == {
        "id": "ID",
        "text": "String",
        "string": "String2String",
    }


def test_names_of_collections_and_fields_add_no_types(
    mongo_uri: str, client: Client, database: str
) -> None:
    """Comments have one line, whatever characters a name has."""
    evil = 'x\r\ntype Evil @collection(name: "secrets") { id: ID! n: Int }\n#'
    client[database].create_collection(evil)
    client[database]["things"].insert_many({evil: 1, f"{evil}.": 1, "_id": n} for n in range(3))
    settings = Settings(mongodb_uri=mongo_uri, database=database)
    text = asyncio.run(
        infer_schema(settings, mongo_uri, database, lambda *_: None, size=None, only=[])
    )
    assert [each.name for each in read(text).entities] == ["Thing"]
    assert "Left out: x type Evil" in text


def test_values_embedded_very_deeply_are_json(
    mongo_uri: str, client: Client, database: str
) -> None:
    """MongoDB limits the depth of the query that looks for documents which do not fit."""
    value: dict[str, Any] = {"n": 1}
    for _ in range(90):
        value = {"c": value}
    client[database]["things"].insert_many({"_id": n, **value} for n in range(3))
    text = asyncio.run(inferred(mongo_uri, database, size=1))
    assert text.count("type ") == 11
    assert "c: JSON!" in text


def test_one_odd_document_among_many_decides(mongo_uri: str, client: Client, database: str) -> None:
    """A sample of ten would miss each of them."""
    events = client[database]["events"]
    ordinary = {
        "n": 1,
        "kind": "a",
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "o": {"x": 1},
        "l": [1],
    }
    events.insert_many({"_id": n, **ordinary} for n in range(2000))
    for n, odd in enumerate(
        [{"n": "text"}, {"kind": None}, {"o": {"x": None}}, {"l": [1, "z"]}, {"at": None}]
    ):
        events.update_one({"_id": 1990 + n}, {"$set": odd})
    events.update_one({"_id": 1980}, {"$unset": {"o": 1}})
    model = read(asyncio.run(inferred(mongo_uri, database, size=10)))
    event = model.entity("Event")
    found = {each.name: (each.type_name, each.required) for each in event.fields}
    assert found == {
        "id": ("ID", True),
        "n": ("JSON", True),
        "kind": (found["kind"][0], False),
        "at": ("DateTime", False),
        "o": ("EventO", False),
        "l": ("JSON", True),
    }
    inner = model.embedded("EventO").field("x")
    assert inner is not None
    assert (inner.type, inner.required) == (Scalar.INT, False)


def test_dates_without_a_time_are_days(mongo_uri: str, client: Client, database: str) -> None:
    """One time among thousands is found, in embedded documents, too; one day again and again, and
    dates in lists, say too little.
    """
    start = datetime(2026, 1, 1, tzinfo=UTC)
    days = [start + timedelta(days=n % 300) for n in range(2000)]
    client[database]["trips"].insert_many(
        {
            "_id": n,
            "day": each,
            "gone": each if n % 2 else None,
            "on": {"day": each, "from": each},
            "since": start,
            "days": [each],
            "stops": [{"day": each}],
            "far": each,
            "at": each,
        }
        for n, each in enumerate(days)
    )
    changed = {
        "on.from": start + timedelta(milliseconds=1),
        "far": DatetimeMS(11_574_074 * 86_400_000),
    }
    client[database]["trips"].update_one({"_id": 1999}, {"$set": changed})
    client[database]["trips"].update_one({"_id": 1998}, {"$set": {"at": "text"}})
    model = read(asyncio.run(inferred(mongo_uri, database, size=50)))
    trip, on, stop = model.entity("Trip"), model.embedded("TripOn"), model.embedded("TripStop")
    assert {each.name: each.type_name for each in trip.fields} == {
        "id": "ID",
        "day": "Date",
        "gone": "Date",
        "on": "TripOn",
        "since": "DateTime",
        "days": "DateTime",
        "stops": "TripStop",
        "far": "Date",
        "at": "JSON",
    }
    assert [each.type_name for each in on.fields] == ["Date", "DateTime"]
    assert [each.type_name for each in stop.fields] == ["DateTime"]


def test_points_differ_from_other_geometries(mongo_uri: str, client: Client, database: str) -> None:
    """One polygon among thousands is found; a validator and lists know objects only."""
    here: dict[str, Any] = {"type": "Point", "coordinates": [13.4, 52.5]}
    place = {"bsonType": "object", "properties": {"type": {"enum": ["Point"]}}}
    schema = {"bsonType": "object", "properties": {"at": place}}
    client[database].create_collection("stops", validator={"$jsonSchema": schema})
    stops = client[database]["stops"]
    stops.create_index([("note", "text"), ("in.title", "text")], weights={"in.title": 5})
    for keys in ([("at", "2dsphere")], [("in.at", "2dsphere")], [("odd", "2dsphere")]):
        stops.create_index(keys)
    stops.insert_many(
        {
            **{"_id": n, "at": here, "some": here, "odd": here, "list": [here]},
            **{"note": f"note {n}", "in": {"at": here, "title": f"title {n}"}},
        }
        for n in range(2000)
    )
    ring = [[0, 0], [1, 0], [1, 1], [0, 0]]
    odd = {"type": "Polygon", "coordinates": [ring]}
    stops.update_one({"_id": 1999}, {"$set": {"odd": odd}, "$unset": {"some": 1}})
    text = asyncio.run(inferred(mongo_uri, database, size=10))
    search = '@search(fields: ["in.title", "note"], weights: [5, 1], language: "english")'
    assert f'@index(fields: ["at"]) @index(fields: ["in.at"]) {search} {{' in text
    model = read(text)
    assert {each.name: each.type_name for each in model.entity("Stop").fields} == {
        "id": "ID",
        "at": "Point",
        "in": "StopIn",
        "some": "Point",
        "odd": "StopOdd",
        "list": "StopList",
        "note": "String",
    }
    some = model.entity("Stop").field("some")
    assert some is not None
    assert not some.required


def test_binary_data_has_the_scalar_of_its_subtype(
    mongo_uri: str, client: Client, database: str
) -> None:
    """UUIDs and plain data have one; other subtypes are shown as JSON."""
    client[database]["files"].insert_one(
        {
            "raw": Binary(b"x"),
            "key": Binary(uuid4().bytes, 4),
            "hash": Binary(b"x", 5),
            "clock": Timestamp(1, 1),
        }
    )
    file = read(asyncio.run(inferred(mongo_uri, database))).entity("File")
    assert {each.name: each.type for each in file.fields} == {
        "id": Scalar.ID,
        "raw": Scalar.BINARY,
        "key": Scalar.UUID,
        "hash": Scalar.JSON,
        "clock": Scalar.TIMESTAMP,
    }


def test_a_validator_adds_fields_and_values(mongo_uri: str, client: Client, database: str) -> None:
    """Fields that no document has may be null; an enum has all values that are allowed."""
    schema = {
        "bsonType": "object",
        "required": ["phase"],
        "properties": {
            "phase": {"enum": ["open", "closed", "in-progress"]},
            "size": {"bsonType": "object", "properties": {"width": {"bsonType": "double"}}},
            "notes": {"bsonType": "array", "items": {"bsonType": "string"}},
            "count": {"bsonType": ["int", "null"]},
        },
    }
    client[database].create_collection("jobs", validator={"$jsonSchema": schema})
    client[database]["jobs"].insert_many({"phase": "open"} for _ in range(3))
    model = read(asyncio.run(inferred(mongo_uri, database)))
    job = model.entity("Job")
    found = {each.name: (each.type_name, each.is_list, each.required) for each in job.fields}
    assert found == {
        "id": ("ID", False, True),
        "phase": ("JobPhase", False, True),
        "size": ("JobSize", False, False),
        "notes": ("String", True, False),
        "count": ("Int", False, False),
    }
    phase = job.field("phase")
    assert phase is not None
    assert isinstance(phase.type, EnumType)
    assert phase.type.values == ("OPEN", "CLOSED", "IN_PROGRESS")


@pytest.mark.parametrize("habit", HABITS)
def test_collections_in_the_habits_of_programs_fit(
    mongo_uri: str, client: Client, database: str, habit: str
) -> None:
    """Ten collections, of which a few documents are sampled, and no collection is left out."""
    collections = HABITS[habit](many=20)
    for name, documents in collections.items():
        client[database][name].insert_many(documents)
    model = read(asyncio.run(inferred(mongo_uri, database, size=4)))
    assert {each.collection for each in model.entities} == set(collections)


@pytest.mark.exhaustive
@pytest.mark.parametrize("habit", HABITS)
def test_a_gateway_serves_every_document_of_these_collections(
    mongo_uri: str, client: Client, database: str, habit: str, tmp_path: Path
) -> None:
    """All fields of all documents are queried, and no field has an error."""
    collections = HABITS[habit]()
    for name, documents in collections.items():
        client[database][name].insert_many(documents)
    schema = tmp_path / "schema.graphql"
    schema.write_text(asyncio.run(inferred(mongo_uri, database, size=4)), "utf-8")
    with running_gateway(mongo_uri, database, schema) as gateway:
        found = served_ids(gateway, read(schema.read_text("utf-8")))
    assert {name: len(set(ids)) for name, ids in found.items()} == {
        name: len(documents) for name, documents in collections.items()
    }


def test_an_object_whose_keys_are_data_is_json(
    mongo_uri: str, client: Client, database: str
) -> None:
    """Many keys of one kind, none of which is usual; with a usual one they are fields."""
    client[database]["stocks"].insert_many(
        {
            "by_shop": {f"shop{m}": m for m in range(n, n + 2)},
            "of_all": {"total": n, **{f"shop{m}": m for m in range(n, n + 2)}},
        }
        for n in range(20)
    )
    text = asyncio.run(inferred(mongo_uri, database))
    assert "byShop: JSON!" in text
    assert "ofAll: StockOfAll!" in text
