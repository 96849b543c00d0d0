"""Entities of several types in one collection: reads, filters, writes, histories, access."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.admin.data_sample import examine_data
from revstream.streams.core import resume_tokens
from tests.support.editing import Row, Shop, open_shop
from tests.support.exhaustive import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = read_model(
    """
    interface Animal @collection(name: "animals") @discriminator(field: "kind", storedAs: "__t")
      @access(rows: "{ or: [{ cat: { lives: { lt: 5 } } }, { hidden: { ne: true } }] }") {
      id: ID!
      name: String!
      hidden: Boolean
      ownerId: ID
      owner: Person @reference(by: "ownerId")
    }
    type Dog implements Animal @variant(value: "dog") {
      id: ID! name: String! hidden: Boolean ownerId: ID owner: Person
      breed: String!
      size: Size
      friendId: ID
      friend: Animal @reference(by: "friendId")
    }
    type Cat implements Animal @variant(value: "cat") {
      id: ID! name: String! hidden: Boolean ownerId: ID owner: Person
      lives: Int!
      secret: String @access(read: ["staff"], write: ["staff"])
      home: Point
    }
    type Size { w: Int! }
    type Person @collection(name: "people") {
      id: ID! name: String animals: [Animal!]! @referencedBy(field: "ownerId")
    }
    """
)
STAFF = Principal(name="eve", roles=frozenset({"staff"}))
FIELDS = """
  __typename name kind owner { name }
  ... on DogState { breed size { w } friend { name kind } }
  ... on CatState { lives }
"""
NAMES = st.sampled_from(["a", "b"])
COMMON = {"name": NAMES, "hidden": st.booleans(), "ownerId": st.sampled_from(["p1", "p2", "p3"])}
DOGS = st.fixed_dictionaries(
    {**COMMON, "__t": st.just("dog"), "breed": NAMES, "lives": st.integers(0, 9)},
    optional={
        "size": st.fixed_dictionaries({"w": st.integers(0, 9)}),
        "friendId": st.sampled_from(["n0", "n1", "n9"]),
    },
)
CATS = st.fixed_dictionaries({**COMMON, "__t": st.just("cat"), "lives": st.integers(0, 9)})
ANIMALS = st.lists(DOGS | CATS, min_size=2, max_size=5)
NUMBERS = st.builds(
    lambda o, n: {o: n}, st.sampled_from(["eq", "ne", "lt", "gte"]), st.integers(0, 9)
)
WORDS = st.builds(lambda o, n: {o: n}, st.sampled_from(["eq", "ne"]), st.sampled_from("ab"))
ONE = st.one_of(
    st.builds(lambda w: {"name": w}, WORDS),
    st.builds(lambda w: {"kind": w}, st.sampled_from([{"eq": "cat"}, {"in": ["dog", "x"]}])),
    st.builds(lambda w: {"cat": w}, st.just({}) | st.builds(lambda n: {"lives": n}, NUMBERS)),
    st.builds(lambda w: {"dog": {"breed": w}}, WORDS),
    st.builds(lambda w: {"dog": {"size": {"w": w}}}, NUMBERS),
    st.builds(lambda w: {"dog": {"not": {"name": w}}}, WORDS),
)
WHERES = (
    ONE
    | st.builds(lambda w: {"not": w}, ONE)
    | st.builds(lambda one, two: {"or": [one, two]}, ONE, ONE)
)


def matches(document: Mapping[str, Any], where: Row) -> bool:
    """Return whether an animal matches, in plain Python."""

    def entry(name: str, value: Any) -> bool:
        if name == "not":
            return not matches(document, value)
        if name == "or":
            return any(matches(document, each) for each in value)
        if name in ("dog", "cat"):
            return document["__t"] == name and matches(document, value)
        if name == "size":
            return matches(document.get("size") or {}, value)
        found = document.get({"kind": "__t"}.get(name, name))
        [(operator, operand)] = value.items()
        return {
            "eq": lambda: found == operand,
            "ne": lambda: found != operand,
            "in": lambda: found in operand,
            "lt": lambda: found is not None and found < operand,
            "gte": lambda: found is not None and found >= operand,
        }[operator]()

    return all(entry(name, value) for name, value in where.items())


def visible(document: Mapping[str, Any]) -> bool:
    """Return whether the row rule lets callers see an animal."""
    low = document["__t"] == "cat" and document["lives"] < 5
    return low or document["hidden"] is not True


def shown(document: Row, world: Mapping[str, Row], suffix: str = "") -> Row:
    """Return what the API shows of an animal."""
    people = {"p1": {"name": "ann"}, "p2": {"name": "bob"}}
    base: Row = {
        "__typename": document["__t"].title() + suffix,
        "name": document["name"],
        "kind": document["__t"],
        "owner": people.get(document["ownerId"]),
    }
    if document["__t"] == "cat":
        return {**base, "lives": document["lives"]}
    friend = world.get(document.get("friendId") or "")
    if friend is not None and not visible(friend):
        friend = None
    return {
        **base,
        "breed": document["breed"],
        "size": document.get("size"),
        "friend": friend and {"name": friend["name"], "kind": friend["__t"]},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over animals and their owners."""
    name = f"entity_unions_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        people = [{"_id": "p1", "name": "ann"}, {"_id": "p2", "name": "bob"}]
        shop.database["people"].insert_many(people)
        yield shop
    client.drop_database(name)


async def ask(shop: Shop, text: str, caller: Principal = STAFF, **variables: Any) -> Any:
    context = context_of(shop.gateway, caller=caller)
    return await shop.schema.execute(text, variables, context)


async def read_twice(shop: Shop, text: str, **variables: Any) -> Any:
    """Return the data of a response by graphql-core, which is that of the compiled query."""
    once, again = [await read(shop, text, **variables) for _ in range(2)]
    assert once == again
    return once


async def read(shop: Shop, text: str, **variables: Any) -> Any:
    """Return the data of a response without errors."""
    result = await ask(shop, text, **variables)
    assert result.errors is None, result.errors
    return result.data


@settings(
    deadline=None,
    max_examples=examples(6),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(first=ANIMALS, second=ANIMALS, filters=st.lists(WHERES, min_size=3, max_size=5))
async def test_reads_and_filters_equal_plain_python(
    shop: Shop, first: list[Row], second: list[Row], filters: list[Row]
) -> None:
    """Pages, states of a moment and back references show each document as its type."""
    animals = shop.database["animals"]
    animals.delete_many({})
    states = []
    for drawn in (first, second):
        for number, each in enumerate(drawn):
            animals.replace_one({"_id": f"n{number}"}, each, upsert=True)
        world = {each["_id"]: each for each in animals.find().sort("_id")}
        moment = resume_tokens.token_from_time(await shop.gateway.mongo.operation_time())
        states.append((world, resume_tokens.encode(moment, shop.gateway.deployment)))
    (before, token), (now, _) = states
    for where in filters:
        found = [each for each in now.values() if visible(each) and matches(each, where)]
        owned = [each for each in found if each["ownerId"] == "p1"]
        data = await read_twice(
            shop,
            f"""query($where: AnimalWhere) {{
              animals(where: $where) {{ totalCount nodes {{ {FIELDS} }} }}
              person(id: "p1") {{ animals(where: $where) {{ nodes {{ {FIELDS} }} }} }}
              animalsAggregate(where: $where, groupBy: {{ kind: true }}) {{
                groups {{ key {{ kind }} count }}
              }}
            }}""",
            where=where,
        )
        assert data["animals"]["nodes"] == [shown(each, now) for each in found]
        assert data["animals"]["totalCount"] == len(found)
        assert data["person"]["animals"]["nodes"] == [shown(each, now) for each in owned]
        counts = Counter(each["__t"] for each in found)
        groups = data["animalsAggregate"]["groups"]
        assert {each["key"]["kind"]: each["count"] for each in groups} == counts
        data = await read_twice(
            shop,
            f"""query($where: AnimalWhere, $at: ResumeToken!) {{
              animalsAsOf(where: $where, asOf: {{ token: $at }}) {{
                nodes {{ document {{ {FIELDS} }} }}
              }}
              animalStates(where: $where, asOf: {{ token: $at }}) {{ nodes {{ {FIELDS} }} }}
            }}""",
            where=where,
            at=token,
        )
        wanted = [
            shown(each, before, "Snapshot")
            for each in before.values()
            if visible(each) and matches(each, where)
        ]
        assert [each["document"] for each in data["animalsAsOf"]["nodes"]] == wanted
        assert data["animalStates"]["nodes"] == wanted


async def write(shop: Shop, name: str, caller: Principal = STAFF, **given: Any) -> Row:
    """Execute a mutation, and return its result; the refusals have a message."""
    kinds = {"id": "ID!", "document": "AnimalInput!", "patch": "AnimalPatch!", "draft": "Int!"}
    declared = ", ".join(f"${each}: {kinds[each]}" for each in given)
    passed = ", ".join(f"{each}: ${each}" for each in given)
    drafted = f"... on AnimalDrafted {{ draft {{ number document {{ {FIELDS} }} }} }}"
    written = f"... on AnimalWritten {{ version animal {{ id version {FIELDS} }} }}"
    text = f"""
      mutation({declared}) {{
        result: {name}({passed}) {{
          __typename ... on WriteError {{ message }}
          {drafted if name == "proposeAnimal" else written}
        }}
      }}
    """
    result = await ask(shop, text, caller, **given)
    if result.errors:
        return {"code": result.errors[0].extensions["code"], "message": result.errors[0].message}
    found: Row = result.data["result"]
    return found


async def test_writes_are_of_one_type(shop: Shop) -> None:
    """A patch of another type is refused; a replacement changes the type."""
    dog = {"name": "rex", "breed": "a", "ownerId": "p1", "size": {"w": 3}}
    made = await write(shop, "createAnimal", id="w1", document={"dog": dog})
    assert made["animal"]["__typename"] == "Dog"
    assert made["animal"]["size"] == {"w": 3}
    assert made["animal"]["owner"] == {"name": "ann"}
    await write(shop, "updateAnimal", id="w1", patch={"dog": {"breed": "b"}})
    stored = shop.database["animals"].find_one({"_id": "w1"}, {"_change": 0, "version": 0})
    assert stored == {
        "_id": "w1", "__t": "dog", "name": "rex", "breed": "b", "ownerId": "p1", "size": {"w": 3},
    }  # fmt: skip
    refused = await write(shop, "updateAnimal", id="w1", patch={"cat": {"lives": 3}})
    assert refused == {
        "__typename": "InvalidDocument",
        "message": "cat: the document's kind is string 'dog', expected 'cat'; "
        "pass the key of its type, or replace it",
    }
    drafted = await write(shop, "proposeAnimal", id="w1", patch={"dog": {"breed": "c"}})
    assert drafted["draft"]["document"]["__typename"] == "DogSnapshot"
    refused = await write(shop, "proposeAnimal", id="w1", patch={"cat": {"lives": 3}})
    assert refused["__typename"] == "InvalidDocument"
    replaced = await write(
        shop, "replaceAnimal", id="w1", document={"cat": {"name": "tom", "lives": 7}}
    )
    assert (replaced["animal"]["__typename"], replaced["animal"]["lives"]) == ("Cat", 7)
    stored = shop.database["animals"].find_one({"_id": "w1"}, {"_change": 0, "version": 0})
    assert stored == {"_id": "w1", "__t": "cat", "name": "tom", "lives": 7}
    conflict = await write(shop, "publishAnimal", id="w1", draft=1)
    assert conflict["__typename"] == "VersionConflict"
    missing = await write(shop, "createAnimal", document={"cat": {"name": "x"}})
    assert missing["code"] == "BAD_USER_INPUT"
    await shop.recorded()
    text = f"""{{
      animal(id: "w1") {{ nodeId version ... on Cat {{ blame {{ path version {{ version }} }} }} }}
      animalVersions(where: {{ documentId: {{ eq: "w1" }} }}) {{
        nodes {{ version changedFields diff {{ path kind }} document {{ {FIELDS} }} }}
      }}
    }}"""
    data = await read_twice(shop, text)
    node = data["animal"]["nodeId"]
    assert data["animal"]["version"] == 3
    blame = {each["path"]: each["version"]["version"] for each in data["animal"]["blame"]}
    assert blame == {"kind": 3, "name": 3, "lives": 3}
    last, middle, first = data["animalVersions"]["nodes"]
    assert {each["path"]: each["kind"] for each in last["diff"]} == {
        "kind": "CHANGED", "name": "CHANGED", "ownerId": "REMOVED", "breed": "REMOVED",
        "size": "REMOVED", "lives": "ADDED",
    }  # fmt: skip
    assert middle["changedFields"] == ["breed"]
    assert (last["document"]["__typename"], first["document"]["__typename"]) == (
        "CatSnapshot",
        "DogSnapshot",
    )
    found = await read(
        shop, f"query($id: ID!) {{ node(nodeId: $id) {{ ... on Animal {{ {FIELDS} }} }} }}", id=node
    )
    assert found["node"]["lives"] == 7
    restored = await read(
        shop,
        """mutation { restoreAnimal(id: "w1", version: 1) { ... on AnimalWritten {
          animal { ... on Dog { breed } } } } }""",
    )
    assert restored["restoreAnimal"]["animal"] == {"breed": "a"}


async def test_a_point_of_one_member_is_compared_as_a_whole(shop: Shop) -> None:
    """Its coordinates are no fields of the model, also where the type changes."""
    animals = shop.database["animals"]
    home = {"type": "Point", "coordinates": [1.0, 2.0]}
    animals.insert_one({"_id": "g1", "__t": "cat", "name": "x", "lives": 1, "home": home})
    animals.update_one({"_id": "g1"}, {"$set": {"home.coordinates.0": 5.0}})
    animals.update_one({"_id": "g1"}, {"$set": {"home.coordinates.0": 7.0, "__t": "dog"}})
    await shop.recorded()
    where = '{ documentId: { eq: "g1" } }'
    data = await read_twice(
        shop, f"{{ animalVersions(where: {where}) {{ nodes {{ diff {{ path before after }} }} }} }}"
    )
    changed, moved, _ = [each["diff"] for each in data["animalVersions"]["nodes"]]
    first, second = [{"longitude": x, "latitude": 2.0} for x in (1.0, 5.0)]
    assert moved == [{"path": "home", "before": first, "after": second}]
    assert changed == [
        {"path": "kind", "before": "cat", "after": "dog"},
        {"path": "home", "before": second, "after": None},
    ]
    animals.delete_one({"_id": "g1"})


async def test_documents_of_unknown_types_are_left_out(shop: Shop) -> None:
    """Each has an error; alone it is null; doctor's sample says the same."""
    animals = shop.database["animals"]
    animals.delete_many({})
    animals.insert_many(
        [
            {"_id": "u1", "__t": "cow", "name": "x"},
            {"_id": "u2", "__t": "cat", "name": "x", "lives": 1},
        ]
    )
    message = "animals/u1: kind: string 'cow', expected one of dog, cat"
    for text in (f"{{ animals {{ nodes {{ {FIELDS} }} }} }}", '{ animal(id: "u1") { kind } }'):
        for _ in range(2):
            result = await ask(shop, text)
            assert [each.extensions["code"] for each in result.errors] == ["DOCUMENT_MISFIT"]
            assert result.errors[0].message.startswith(message)
            mend = "store one of dog, cat in __t, or declare a type for it"
            assert result.errors[0].extensions["mend"] == mend
    assert result.data == {"animal": None}
    result = await ask(shop, "{ animals { totalCount nodes { id } } }")
    assert result.data["animals"] == {"totalCount": 2, "nodes": [{"id": "u2"}]}
    await shop.recorded()
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    for arguments in ("", f'(asOf: {{token: "{token}"}})'):
        for shown in ("totalCount", "edges { cursor }"):
            result = await ask(shop, f"{{ animalStates{arguments} {{ {shown} }} }}")
            # Nothing of the documents is shown.
            assert result.errors is None
    result = await ask(shop, "{ animalVersions { nodes { document { name } documentId } } }")
    nodes = {
        each["documentId"]: each["document"] for each in result.data["animalVersions"]["nodes"]
    }
    assert (nodes["u1"], nodes["u2"]) == (None, {"name": "x"})
    findings = [each.text for each in await examine_data(shop.gateway.mongo, MODEL)]
    assert any(message in each for each in findings)
    animals.delete_many({})


async def test_changes_are_filtered_by_type(shop: Shop) -> None:
    """A document that becomes another type leaves a subscription to the one."""
    text = f"""subscription {{
      animalChanges(where: {{ id: {{ eq: "s2" }}, cat: {{ lives: {{ lt: 5 }} }} }}) {{
        kind transition version changedFields animal {{ {FIELDS} }} before {{ __typename }}
      }}
    }}"""
    animals = shop.database["animals"]
    async with shop.changes(text) as events:
        assert (await anext(events))["kind"] == "CHECKPOINT"
        animals.insert_one({"_id": "s1", "__t": "dog", "name": "x", "breed": "a"})
        animals.insert_one({"_id": "s2", "__t": "cat", "name": "x", "lives": 1})
        animals.update_one({"_id": "s2"}, {"$set": {"__t": "dog", "breed": "a"}})
        entered, left = [await anext(events) for _ in range(2)]
    assert (entered["transition"], entered["animal"]["__typename"]) == ("ENTER", "Cat")
    assert entered["animal"]["lives"] == 1
    assert (left["transition"], left["animal"]["__typename"]) == ("LEAVE", "Dog")
    assert left["before"] == {"__typename": "CatSnapshot"}
    assert sorted(left["changedFields"]) == ["breed", "kind"]
    snapshot = """subscription {
      animalChanges(snapshot: true, where: { id: { in: ["s1", "s2"] }, dog: {} }) {
        kind animal { id ... on Dog { breed } }
      }
    }"""
    async with shop.changes(snapshot) as events:
        found = [await anext(events) for _ in range(2)]
    assert sorted(each["animal"]["id"] for each in found) == ["s1", "s2"]
    assert [each["animal"]["breed"] for each in found] == ["a", "a"]


async def test_a_field_of_one_member_is_hidden_wherever_it_would_show(shop: Shop) -> None:
    """A caller without the role neither reads, filters nor writes it."""
    bob = Principal(name="bob")
    animals = shop.database["animals"]
    animals.insert_one({"_id": "a1", "__t": "cat", "name": "x", "lives": 1, "secret": "s"})
    animals.update_one({"_id": "a1"}, {"$set": {"secret": "t"}})
    await shop.recorded()

    async def refused(text: str) -> bool:
        result = await ask(shop, text, bob)
        return bool(result.errors) and result.errors[0].extensions["code"] == "FORBIDDEN"

    assert await refused('{ animal(id: "a1") { ... on Cat { secret } } }')
    where = '{ cat: { secret: { eq: "t" } } }'
    assert await refused(f"{{ animals(where: {where}) {{ totalCount }} }}")
    named = '{ documentId: { eq: "a1" }, changedField: "secret" }'
    assert await refused(f"{{ animalVersions(where: {named}) {{ totalCount }} }}")
    result = await ask(
        shop,
        """{ animalVersions(where: { documentId: { eq: "a1" } }) {
          nodes { changedFields diff { path } } }
          animal(id: "a1") { ... on Cat { blame { path } } } }""",
        bob,
    )
    assert result.errors is None
    last, first = result.data["animalVersions"]["nodes"]
    assert last == {"changedFields": [], "diff": []}
    assert [each["path"] for each in first["diff"]] == ["kind", "name", "lives"]
    assert [each["path"] for each in result.data["animal"]["blame"]] == ["kind", "name", "lives"]
    denied = await write(shop, "updateAnimal", bob, id="a1", patch={"cat": {"secret": "u"}})
    assert denied["code"] == "FORBIDDEN"
    document = {"cat": {"name": "y", "lives": 2}}
    await write(shop, "replaceAnimal", bob, id="a1", document=document)
    stored = animals.find_one({"_id": "a1"})
    assert stored is not None
    assert (stored["name"], stored["secret"]) == ("y", "t")
    # The secret would stay in the document, where the other type might show it.
    document = {"dog": {"name": "z", "breed": "b"}}
    denied = await write(shop, "replaceAnimal", bob, id="a1", document=document)
    assert denied["message"] == (
        "kind: the document has string 'cat', expected 'dog', since you may not write all "
        "fields of its type; replace it by one of its own type"
    )
    allowed = await write(shop, "replaceAnimal", id="a1", document=document)
    assert allowed["animal"]["__typename"] == "Dog"
    assert "secret" not in (animals.find_one({"_id": "a1"}) or {})
