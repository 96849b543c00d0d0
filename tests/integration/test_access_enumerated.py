"""Every field of the generated API, from its type map: it never reveals a row that a row rule
hides.

The first owner requests the second owner's rows by each root field, along every path below it. No
response contains any of their values, and the response for a document of the second owner equals
the one for a document that never existed. As controls, the second owner sees the rows by the same
operations, and each field occurs in some response. A new field that no operation reaches fails the
test.
"""

from __future__ import annotations

import gc
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from graphql import (
    GraphQLField,
    GraphQLInterfaceType,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLUnionType,
    get_named_type,
    is_required_argument,
)
from pymongo import MongoClient

from revstream.gql.engine.execution.document_cache import KnownDocument
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.values.global_id import node_id
from revstream.streams.core.lru_cache import LruCache
from tests.support.editing import Row
from tests.support.exhaustive import representatives
from tests.support.guarded import ANN, EVE, HIDDEN, NOT_THERE, Rows, guarded_rows
from tests.support.layouts import CLASSIC

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
    # graphql-core cancels siblings of a failed field; coroutines that never started warn.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine:pytest.PytestUnraisableExceptionWarning"
    ),
]

# Fields without values of rows, with the reasons.
NO_ROWS = {
    "Query.resumeToken": "where the stream stands",
    "Query.streams": "how the listeners do",
    "Query.savedCursors": "places in the stream, under the caller's own name",
    "Mutation.saveCursor": "a place in the stream, under the caller's own name",
    "Mutation.removeCursor": "a place in the stream, under the caller's own name",
}
_STATUS = ("StreamStatus", "StreamReading", "HistoryCut", "HistoryGap", "SavedCursor")
"""Types whose fields hold no values of rows: listeners, truncation, gaps, and positions in the
change stream."""

# Arguments of nested fields that require some, and alternatives for others.
DIFFS = ("from: 1", "from: 1, to: 2", "from: 2")
GROUPS = {
    "Invoice": (
        "groupBy: {ownerId: true, title: true, amount: true, accountId: true, tags: true, "
        "address: {street: true, city: true}, account: {ownerId: true, name: true}}"
    ),
    "Account": "groupBy: {ownerId: true, name: true}",
    "Meter": "groupBy: {ownerId: true, sequence: true, amount: true}",
}
WAYS = {
    "state": ("version: 1", "version: 2", "version: 3", "asOf: {token: $now}"),
    "history": ("first: 50",),
    "invoices": ("first: 50",),
    "invoicesAggregate": (GROUPS["Invoice"],),
}
IDS = {
    "Invoice": ("hidden", "came", "moved", "mine", "deleted"),
    "Account": ("other-account", "account"),
    "Meter": ("hidden-meter", "meter"),
}
CONTENT = {
    "Invoice": '{ownerId: "ann", title: "t", amount: 1, tags: [], address: {street: "s"}}',
    "Account": '{ownerId: "ann", name: "n"}',
    "Meter": '{ownerId: "ann", sequence: 4, amount: 2}',
}
PATCH = {"Invoice": '{title: "t"}', "Account": '{name: "n"}', "Meter": "{amount: 3}"}


@dataclass(frozen=True)
class Question:
    """An operation; `names`: the documents that it names, whose ids may be in the response."""

    root: str
    text: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    names: frozenset[str] = frozenset()


@dataclass
class Enumeration:
    """The fields below a field, as selections that contain every field of every type there."""

    schema: GraphQLSchema
    asked: set[str] = field(default_factory=set)

    def selections(self, kind: Any) -> Iterator[str]:
        """Yield the whole selection, then one for each field that may fail.

        A failure would remove its object from the response.
        """
        yield self._selection(kind, set(), None)
        for way in DIFFS:
            selection = self._selection(kind, set(), way)
            if f"diff({way})" in selection:
                yield selection

    def whole(self, kind: Any) -> Iterator[str]:
        """Yield the selections without fields that may fail."""
        yield self._selection(kind, set(), None)

    def flat(self, kind: Any, entity: str) -> str:
        """Return the selection without the objects below current and past documents."""
        return self._selection(kind, {entity, f"{entity}Snapshot"}, None)

    def _selection(self, kind: Any, seen: set[str], diff: str | None) -> str:
        """Return a selection.

        Args:
            seen: types that are selected above or before; only their leaf fields are selected.
        """
        named = get_named_type(kind)
        if isinstance(named, GraphQLUnionType | GraphQLInterfaceType):
            inner = [
                f"... on {each.name} {{ {self._selection(each, seen, diff)} }}"
                for each in self.schema.get_possible_types(named)
            ]
            return " ".join(["__typename", *inner])
        assert isinstance(named, GraphQLObjectType)
        parts, deeper = ["__typename"], named.name not in seen
        seen.add(named.name)
        for name, each in named.fields.items():
            if name == "diff" and each.args:
                self.asked.add(f"{named.name}.diff")
                if diff is not None:
                    alias = _alias(named.name, name)
                    parts.append(
                        f"{alias}: diff({diff}) {{ {self._selection(each.type, seen, diff)} }}"
                    )
            elif not _is_composite(each):
                self.asked.add(f"{named.name}.{name}")
                # Fields of one name that differ in nullability only are selected once.
                parts.append(f"{_alias(named.name, name)}: {name}")
            elif deeper:
                self.asked.add(f"{named.name}.{name}")
                inside = self._selection(each.type, seen, diff)
                parts += [f"{ask} {{ {inside} }}" for ask in self._ways(named.name, name, each)]
        return " ".join(parts)

    def _ways(self, owner: str, name: str, each: GraphQLField) -> Iterator[str]:
        ways = WAYS.get(name)
        if ways is None or not each.args:
            required = [n for n, a in each.args.items() if is_required_argument(a)]
            assert not required, f"how is {owner}.{name}({', '.join(required)}) asked? WAYS"
            yield f"{_alias(owner, name)}: {name}"
            return
        for number, way in enumerate(ways):
            yield f"{_alias(owner, name)}_{number}: {name}({way})"


def _alias(owner: str, name: str) -> str:
    return f"{owner}_{name}"


def _is_composite(each: GraphQLField) -> bool:
    named = get_named_type(each.type)
    return isinstance(named, GraphQLObjectType | GraphQLInterfaceType | GraphQLUnionType)


def roots(entity: str, plural: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield field, arguments and their values for every root field.

    A text with many values is parsed once.
    """
    one = entity[0].lower() + entity[1:]
    yield plural, "first: 50", {}
    yield f"{plural}AsOf", "asOf: {token: $now}, first: 50", {}
    yield f"{one}States", "first: 50", {}
    yield f"{one}States", "asOf: {token: $now}, first: 50", {}
    yield f"{plural}Aggregate", GROUPS[entity], {}
    yield f"{plural}Aggregate", f"asOf: {{token: $now}}, {GROUPS[entity]}", {}
    yield f"{one}Versions", "first: 50", {}
    groups = "documentId: true, author: true, operation: true, at: {by: MINUTE}, changedField: true"
    yield f"{one}VersionsAggregate", f"groupBy: {{{groups}}}", {}
    yield f"{one}Drafts", "first: 50", {}
    yield f"{one}Comments", "first: 50", {}
    yield "allDrafts", "first: 50", {}
    yield "allComments", "first: 50", {}
    for id_ in IDS[entity]:
        yield one, "id: $id", {"id": id_}
        yield f"{one}State", "id: $id", {"id": id_}
        yield f"{one}State", "id: $id, asOf: {token: $now}", {"id": id_}
        yield f"{one}Version", "id: $id, asOf: {token: $now}", {"id": id_}
        for number in (1, 2, 3):
            yield f"{one}Version", "id: $id, version: $number", {"id": id_, "number": number}
        objects = [(entity, id_)]
        objects += [
            (kind, f"{id_}@{which}")
            for kind in (f"{entity}Version", f"{entity}Snapshot")
            for which in (1, 2, 3)
        ]
        objects += [(f"{entity}Snapshot", f"{id_}@draft-{number}") for number in (1, 2)]
        for kind, text in objects:
            yield "node", "nodeId: $node", {"node": node_id(kind, text), "id": id_}


def writes(entity: str) -> Iterator[tuple[str, str]]:
    """Yield field and arguments of every mutation of an existing document."""
    content, patch = CONTENT[entity], PATCH[entity]
    yield f"update{entity}", f"id: $id, expectedVersion: 99, patch: {patch}"
    yield f"update{entity}", f"id: $id, patch: {patch}"
    yield f"replace{entity}", f"id: $id, document: {content}"
    yield f"restore{entity}", "id: $id, version: 1"
    yield f"restore{entity}", "id: $id, version: 1, expectedVersion: 99"
    yield f"propose{entity}", f"id: $id, basedOn: 1, patch: {patch}"
    yield f"propose{entity}", f"id: $id, basedOnDraft: 1, patch: {patch}"
    yield f"restore{entity}", "id: $id, draft: 1"
    yield f"publish{entity}", "id: $id, draft: 1"
    yield f"reject{entity}", "id: $id, draft: 1"
    yield f"commentOn{entity}", 'id: $id, version: 1, text: "t"'
    yield f"commentOn{entity}", 'id: $id, draft: 1, text: "t"'
    yield f"delete{entity}", "id: $id"


def takes(entity: str) -> Iterator[tuple[str, str]]:
    """Yield the mutations that create a document: for a hidden id they report the conflict.

    Ids are unique.
    """
    content = CONTENT[entity]
    yield f"create{entity}", f"id: $id, document: {content}"
    yield f"proposeNew{entity}", f"id: $id, document: {content}"
    if entity == "Meter":
        yield "applyMeter", f"id: $id, document: {content}"
        yield "applyMeters", f"events: [{{id: $id, document: {content}}}]"


ROOTS = ("Query", "Mutation", "Subscription")
ENTITIES = {"Invoice": "invoices", "Account": "accounts", "Meter": "meters"}


VALID: defaultdict[str, dict[str, KnownDocument]] = defaultdict(dict)
"""Valid documents, by schema and text."""


class ValidatedDocuments(LruCache[str, KnownDocument]):
    """Cache of parsed and validated documents for equal schemas.

    Validation of such long documents takes four fifths of a layout's time and has the same result
    in each.
    """

    def __init__(self, valid: dict[str, KnownDocument]) -> None:
        super().__init__(most=1000, most_size=100_000_000)
        self._valid = valid

    def get(self, key: str) -> KnownDocument | None:
        found = super().get(key)
        if found is None and key in self._valid:
            # The query plan belongs to this schema.
            found = KnownDocument(self._valid[key].document, self._valid[key].cost)
            self.put(key, found, len(key))
        return found

    def put(self, key: str, value: KnownDocument, size: int) -> None:
        super().put(key, value, size)
        self._valid.setdefault(key, value)


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=representatives(["FULL", "DELTA", *CLASSIC], "FULL"),
)
async def rows(
    request: pytest.FixtureRequest, mongo_uri: str, client: MongoClient[Row]
) -> AsyncIterator[Rows]:
    """Run a gateway for each storage kind and layout.

    The server can look into FULL versions, and not into DELTA ones.
    """
    name = f"access_{uuid4().hex[:8]}"
    async with guarded_rows(client, mongo_uri, name, storage=request.param) as opened:
        schema: Any = opened.shop.schema
        schema._documents.known = ValidatedDocuments(VALID[schema.as_str()])
        yield opened
    client.drop_database(name)


@pytest.fixture(autouse=True)
def found_here() -> Iterator[None]:
    """Collect garbage of cancelled coroutines, which would warn in another test."""
    yield
    gc.collect()


def questions(enumeration: Enumeration) -> Iterator[Question]:
    """Yield all queries."""
    fields = enumeration.schema.query_type.fields  # type: ignore[union-attr]
    known: dict[tuple[str, str], list[str]] = {}
    for entity, plural in ENTITIES.items():
        for name, given, values in roots(entity, plural):
            enumeration.asked.add(f"Query.{name}")
            if (name, given) not in known:
                type_ = fields[name].type
                # States are the types of other fields, where all below them is asked.
                selections = (
                    [enumeration.flat(type_, entity)]
                    if name.endswith(("State", "States"))
                    else enumeration.selections(type_)
                )
                known[name, given] = [operation("query", name, given, each) for each in selections]
            names = frozenset({values["id"]}) if "id" in values else frozenset[str]()
            for text in known[name, given]:
                yield Question(name, text, values, names)


VARIABLES = {
    "$now": "ResumeToken!",
    "$id": "ID!",
    "$number": "Int",
    "$node": "ID!",
    "$began": "ResumeToken!",
}


def operation(kind: str, name: str, given: str, selection: str) -> str:
    """Return the operation with its variables declared."""
    body = f"{name}({given}) {{ {selection} }}"
    used = [f"{each}: {type_}" for each, type_ in VARIABLES.items() if each in body]
    declared = f"({', '.join(used)})" if used else ""
    return f"{kind} {declared} {{ {body} }}"


def leaks(answer: Mapping[str, Any], named: frozenset[str]) -> list[str]:
    """Return the other owner's values in a response."""
    text = json.dumps(answer, default=str)
    found = [each for each in HIDDEN if each in text]
    for each in set(NOT_THERE) - named - {"other-account"}:
        # Only as whole values: ids are also parts of other texts.
        found += [each] if f'"{each}"' in text or f'"{each}@' in text else []
    return found


def answered(value: Any, found: set[str]) -> None:
    """Record the fields of each type that occur in a response."""
    if isinstance(value, list):
        for each in value:
            answered(each, found)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            owner, _, rest = name.partition("_")
            found.add(f"{owner}.{rest.partition('_')[0]}")
            answered(each, found)


async def now(rows: Rows) -> str:
    answer = await rows.ask(EVE, "{ resumeToken }")
    return str(answer["data"]["resumeToken"])


async def test_no_field_reveals_a_hidden_row(rows: Rows) -> None:
    """Queries, mutations and subscriptions reach every field of the API."""
    schema: GraphQLSchema = rows.shop.schema._schema
    enumeration = Enumeration(schema)
    reached: set[str] = set()
    moment = await now(rows)

    async def ask(caller: Principal, question: Question) -> dict[str, Any]:
        values = {**question.variables, "now": moment}
        used = {name: each for name, each in values.items() if f"${name}" in question.text}
        answer = await rows.ask(caller, question.text, **used)
        assert not [e for e in answer["errors"] if e["extensions"]["code"] == "INTERNAL"], answer
        answered(answer["data"], reached)
        return answer

    seen_by_eve = 0
    for question in questions(enumeration):
        answer = await ask(ANN, question)
        assert not leaks(answer, question.names), (question.text, answer)
        if question.names and question.names <= set(NOT_THERE):
            assert _is_like_nothing(answer, question), (question.text, answer)
        if not any(each in question.text for each in DIFFS):
            seen_by_eve += bool(leaks(await ask(EVE, question), question.names))
    assert seen_by_eve > 30

    await _ask_counts(rows)
    if rows.storage == "DELTA":
        return  # its fields are selected elsewhere, too
    await _ask_changes(rows, enumeration, reached)
    await _ask_proposal_changes(rows, enumeration, reached)
    await _ask_writes(rows, enumeration, ask)
    await _ask_what_is_done(enumeration, ask)
    _check_complete(schema, enumeration, reached)


def _is_like_nothing(answer: Mapping[str, Any], question: Question) -> bool:
    """Return whether the response equals that for a document that never existed."""
    return answer["data"] == {question.root: None} and not answer["errors"]


async def _ask_counts(rows: Rows) -> None:
    """Check that totals, pages and edges count the caller's rows only."""
    for entity, mine in (
        ("Invoice", {"mine", "came"}),
        ("Account", {"account"}),
        ("Meter", {"meter"}),
    ):
        plural, one = ENTITIES[entity], entity.lower()
        moment = await now(rows)
        text = f"""query($now: ResumeToken!) {{
          now: {plural}(first: 1) {{ totalCount pageInfo {{ hasNextPage }} nodes {{ id }} }}
          then: {plural}AsOf(asOf: {{token: $now}}) {{ totalCount nodes {{ documentId }} }}
          trail: {one}Versions(first: 1) {{ totalCount }}
          all: {one}Versions(first: 50) {{ nodes {{ id }} }}
          named: {one}Versions(where: {{documentId: {{in: ["hidden", "moved", "came"]}}}}) {{
            totalCount }}
          filtered: {plural}(where: {{ownerId: {{ne: "ann"}}}}) {{ totalCount }}
        }}"""
        data = (await rows.ask(ANN, text, now=moment))["data"]
        assert data["now"]["totalCount"] == len(mine)
        assert data["now"]["pageInfo"]["hasNextPage"] == (len(mine) > 1)
        assert {each["documentId"] for each in data["then"]["nodes"]} == mine
        assert data["then"]["totalCount"] == len(mine)
        versions = {each["id"] for each in data["all"]["nodes"]}
        expected = {"mine@1", "mine@2", "came@2", "moved@1"} if entity == "Invoice" else None
        assert versions == (expected or {f"{next(iter(mine))}@1"})
        assert data["trail"]["totalCount"] == len(versions)
        assert data["named"]["totalCount"] == (2 if entity == "Invoice" else 0)
        assert data["filtered"]["totalCount"] == 0


async def _ask_changes(rows: Rows, enumeration: Enumeration, reached: set[str]) -> None:
    """Subscribe with replay from the beginning, and with a snapshot, until idle."""
    values = {"now": await now(rows), "began": rows.began}
    for entity in ENTITIES:
        name = f"{entity.lower()}Changes"
        enumeration.asked.add(f"Subscription.{name}")
        kind = enumeration.schema.subscription_type.fields[name].type  # type: ignore[union-attr]
        (selection,) = enumeration.whole(kind)
        for start in ("after: $began", "snapshot: true"):
            inside = f"kind documentId operation {selection}"
            text = operation("subscription", name, start, inside)
            used = {each: value for each, value in values.items() if f"${each}" in text}
            for caller in (ANN, EVE):
                async with aclosing(await rows.events(caller, text, **used)) as events:
                    told = [each async for each in _until_quiet(events)]
                answered(told, reached)
                if caller is ANN:
                    _check_told(told, text)


async def _ask_proposal_changes(rows: Rows, enumeration: Enumeration, reached: set[str]) -> None:
    """Subscribe from the beginning: drafts and comments of the second owner are sent to no other
    caller.
    """
    names = [f"{each.lower()}{kind}Changes" for each in ENTITIES for kind in ("Draft", "Comment")]
    for name in (*names, "allDraftChanges", "allCommentChanges"):
        enumeration.asked.add(f"Subscription.{name}")
        kind = enumeration.schema.subscription_type.fields[name].type  # type: ignore[union-attr]
        (selection,) = enumeration.whole(kind)
        text = operation("subscription", name, "after: $began", f"kind {selection}")
        for caller in (ANN, EVE):
            async with aclosing(await rows.events(caller, text, began=rows.began)) as events:
                told = [each async for each in _until_quiet(events)]
            answered(told, reached)
            changes = [each for each in told if each["kind"] != "CHECKPOINT"]
            if caller is ANN:
                assert not changes, (name, changes)
            else:
                assert changes, name


async def _until_quiet(events: Any) -> AsyncIterator[dict[str, Any]]:
    """Yield the events up to the first CHECKPOINT, at the end of the snapshot or of the replay."""
    async for each in events:
        assert not each.errors or each.data, each.errors
        (event,) = each.data.values()
        yield event
        if event["kind"] == "CHECKPOINT":
            return


_OF_A_LEAVE = {
    *("typename", "__typename", "kind", "documentId", "transition", "at", "resumeToken"),
    "replayed",
}


def _check_told(told: list[dict[str, Any]], text: str) -> None:
    left = [
        each for each in told if each.get("documentId") == "moved" and each["operation"] is None
    ]
    for each in told:
        assert not leaks(each, frozenset()), (text, each)
    for each in left:
        shown = {
            n if n[0] == "_" else n.split("_")[-1]
            for n, v in each.items()
            if v not in (None, [], False)
        }
        assert shown <= _OF_A_LEAVE, shown


async def _ask_writes(rows: Rows, enumeration: Enumeration, ask: Any) -> None:
    """Write a hidden document: the response is that for a missing one, and the document stays."""
    schema, database = enumeration.schema, rows.shop.database
    fields = schema.mutation_type.fields  # type: ignore[union-attr]
    ids = {"$in": [*(set(NOT_THERE) - {"deleted"}), "moved"]}
    theirs = {"$or": [{"_id": ids}, {"docId": ids}]}
    before = {n: list(database[n].find(theirs).sort("_id")) for n in ENTITIES.values()}
    beside = [f"{n}.{each}" for n in ENTITIES.values() for each in ("drafts", "comments")]
    said = {n: database[n].count_documents({"doc": {"$in": NOT_THERE}}) for n in beside}
    for entity in ENTITIES:
        for make in (writes, takes):
            for name, given in make(entity):
                enumeration.asked.add(f"Mutation.{name}")
                (selection,) = enumeration.whole(fields[name].type)
                text = operation("mutation", name, given, selection)
                nothing = None
                if make is writes:
                    nothing = json.dumps(await ask(ANN, Question(name, text, {"id": "nothing"})))
                for id_ in IDS[entity]:
                    if id_ not in (*NOT_THERE, "moved") or id_ == "deleted":
                        continue
                    answer = await ask(ANN, Question(name, text, {"id": id_}))
                    assert not leaks(answer, frozenset({id_})), (text, answer)
                    if nothing is not None and id_ != "moved":
                        assert json.dumps(answer).replace(id_, "nothing") == nothing
    await rows.shop.recorded()
    for name, found in before.items():
        assert list(database[name].find(theirs).sort("_id")) == found
    assert {n: database[n].count_documents({"doc": {"$in": NOT_THERE}}) for n in beside} == said


async def _ask_what_is_done(enumeration: Enumeration, ask: Any) -> None:
    """Execute the second owner's own writes, so that each type of result occurs."""
    fields = enumeration.schema.mutation_type.fields  # type: ignore[union-attr]
    given = [(name, arguments, "hidden-meter") for name, arguments in takes("Meter")][1:]
    given += [
        ("createInvoice", f"id: $id, document: {CONTENT['Invoice']}", "hidden"),
        ("updateInvoice", "id: $id, patch: {title: null}", "hidden"),
        ("commentOnInvoice", 'id: $id, version: 1, text: "t"', "hidden"),
    ]
    for entity, ids in IDS.items():
        given += [
            (f"create{entity}", f"id: $id, document: {CONTENT[entity]}", "new"),
            (f"update{entity}", f"id: $id, expectedVersion: 99, patch: {PATCH[entity]}", ids[0]),
            (f"propose{entity}", f"id: $id, patch: {PATCH[entity]}", ids[0]),
        ]
    for name, arguments, id_ in given:
        hers = arguments.replace('"ann"', f'"{EVE.name}"')
        selections = enumeration.selections(fields[name].type)
        for selection in selections if name == "updateAccount" else [next(selections)]:
            text = operation("mutation", name, hers, selection)
            answer = await ask(EVE, Question(name, text, {"id": id_}))
            assert answer["data"] or "diff" in text, (text, answer)


def _check_complete(schema: GraphQLSchema, enumeration: Enumeration, reached: set[str]) -> None:
    everything = {
        f"{kind.name}.{name}"
        for kind in schema.type_map.values()
        if isinstance(kind, GraphQLObjectType) and not kind.name.startswith("__")
        for name in kind.fields
        if kind.name not in _STATUS
    }
    unknown = everything - enumeration.asked - set(NO_ROWS)
    assert not unknown, f"nobody asks {sorted(unknown)}: say how, or why it holds no row (NO_ROWS)"
    silent = {each for each in everything if each.split(".")[0] not in ROOTS} - reached
    assert not silent, f"no answer has {sorted(silent)}: ask a question that is answered with it"
