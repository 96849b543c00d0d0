"""`@access` on a real MongoDB: roles of types and fields, and row rules for writes and
subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of, create_app
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from revstream.resolvers.history import row_filtered_pages
from tests.support.editing import Row, Shop, open_shop
from tests.support.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = read_model(
    """
    type Ticket @collection(name: "tickets")
      @access(read: ["reader", "staff"], write: ["writer", "staff"],
              rows: "{ owner: { eq: $sub } }") {
      id: ID! owner: String! title: String
      margin: Int @access(read: ["staff"])
      status: String @access(write: ["staff"])
      place: Place
      chiefId: ID @access(read: ["staff"])
      chief: Chief @reference(by: "chiefId")
    }
    type Place { city: String secret: String @access(read: ["staff"], write: ["staff"]) }
    type Chief @collection(name: "chiefs") @access(read: ["staff"]) {
      id: ID! name: String
      tickets: [Ticket!]! @referencedBy(field: "chiefId")
    }
    type Gauge @collection(name: "gauges") @access(rows: "{ owner: { eq: $sub } }") {
      id: ID! owner: String sequence: Long! @fence @access(read: ["staff"])
    }
    type Parcel @collection(name: "parcels")
      @access(rows: "{ or: [{ owner: { eq: $sub } }, { sealed: { exists: false } }] }") {
      id: ID! owner: String @access(write: ["chief"]) sealed: Boolean sequence: Long! @fence
      weight: Int
    }
    type Dial @collection(name: "dials") @access(rows: "{ owner: { eq: $sub } }") {
      id: ID! owner: String sequence: Long! @fence
    }
    type Memo @collection(name: "memos", storage: DELTA)
      @access(rows: "{ owner: { eq: $sub } }") { id: ID! owner: String n: Int filler: String }
    type Lodger @collection(name: "lodgers")
      @access(rows: "{ or: [{ owner: { eq: $sub } }, { sealed: { exists: false } }] }") {
      id: ID! owner: String sealed: Boolean @access(write: ["chief"]) sequence: Long! @fence
    }
    """
)
READER = Principal(name="ann", roles=frozenset({"reader"}))
WRITER = Principal(name="ann", roles=frozenset({"writer"}))
BOTH = Principal(name="ann", roles=frozenset({"reader", "writer"}))
STAFF = Principal(name="ann", roles=frozenset({"staff"}))
OTHER = Principal(name="bob", roles=frozenset({"staff"}))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def office(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over one ticket of two versions, `t`, which belongs to ann."""
    name = f"office_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        shop.database["chiefs"].insert_one({"_id": "c", "name": "Chief"})
        await ask(shop, STAFF, _create("t", 'margin: 77, chiefId: "c", place: {secret: "s"}'))
        await ask(
            shop, STAFF, 'mutation { updateTicket(id: "t", patch: {margin: 78}) {__typename} }'
        )
        await shop.recorded()
        yield shop
    client.drop_database(name)


def _create(id_: str, more: str = "", owner: str = "ann") -> str:
    content = f'{{owner: "{owner}", title: "x", {more}}}'
    return f'mutation {{ made: createTicket(id: "{id_}", document: {content}) {{ {WRITTEN} }} }}'


WRITTEN = "__typename ... on WriteError { message } ... on TicketWritten { version ticket { id } }"


async def ask(shop: Shop, caller: Principal, text: str, key: str | None = None) -> dict[str, Any]:
    context = context_of(shop.gateway, caller=caller, idempotency_key=key)
    result = await shop.schema.execute(text, {}, context)
    codes = [(e.extensions or {}).get("code") for e in result.errors or ()]
    return {"data": result.data, "codes": codes, "paths": [e.path for e in result.errors or ()]}


async def test_callers_of_one_batched_read_see_their_own_rows(office: Shop) -> None:
    """Compiled queries do the same, in any order of the callers."""
    text = '{ ticket(id: "t") { id title } }'
    own = {"data": {"ticket": {"id": "t", "title": "x"}}, "codes": [], "paths": []}
    nothing = {**own, "data": {"ticket": None}}
    for _ in range(3):
        reads = office.gateway.services.current.lookups.reads
        found = await asyncio.gather(
            *(ask(office, each, text) for each in (OTHER, STAFF, OTHER, READER))
        )
        assert found == [nothing, own, nothing, own]
    assert office.gateway.services.current.lookups.reads == reads + 1


async def test_a_repeated_page_has_the_rows_of_its_caller(office: Shop) -> None:
    """A compiled query keeps the rows, and the allowed filter fields, of each caller apart."""
    text = "{ tickets(first: 5, where: {margin: {gt: 5}}) { nodes { id title } } }"
    own = {"data": {"tickets": {"nodes": [{"id": "t", "title": "x"}]}}, "codes": [], "paths": []}
    nothing = {**own, "data": {"tickets": {"nodes": []}}}
    for _ in range(3):
        assert await ask(office, STAFF, text) == own
        assert await ask(office, OTHER, text) == nothing
        assert (await ask(office, READER, text))["codes"] == ["FORBIDDEN"]


async def test_concurrent_pages_have_the_rows_of_their_callers(office: Shop) -> None:
    """Each page has the rows of its caller."""
    text = "{ tickets(first: 5) { nodes { id title } } }"
    own = {"data": {"tickets": {"nodes": [{"id": "t", "title": "x"}]}}, "codes": [], "paths": []}
    nothing = {**own, "data": {"tickets": {"nodes": []}}}
    for _ in range(3):
        found = await asyncio.gather(
            *(ask(office, each, text) for each in (OTHER, STAFF, OTHER, READER, STAFF))
        )
        assert found == [nothing, own, nothing, own, own]


FORBIDDEN = {
    "the type": '{ chief(id: "c") { name } }',
    "a list of the type": "{ chiefs { nodes { name } } }",
    "its past": '{ chiefVersion(id: "c", version: 1) { version } }',
    "its trail": "{ chiefVersions { totalCount } }",
    "a filter": "{ tickets(where: {margin: {gt: 5}}) { totalCount } }",
    "a filter below others": "{ tickets(where: {or: [{not: {margin: {eq: 5}}}]}) { totalCount } }",
    "a filter inside": '{ tickets(where: {place: {secret: {eq: "s"}}}) { totalCount } }',
    "an order": "{ tickets(orderBy: [{margin: ASC}]) { totalCount } }",
    "an order inside": "{ tickets(orderBy: [{place: {secret: ASC}}]) { totalCount } }",
    "a filter of versions": '{ ticketVersions(where: {changedField: "margin"}) { totalCount } }',
    "one of what is around it": (
        '{ ticketVersions(where: {changedField: "place"}) { totalCount } }'
    ),
}


@pytest.mark.parametrize("text", FORBIDDEN.values(), ids=list(FORBIDDEN))
async def test_a_hidden_field_cannot_be_used_in_filters_and_orders(office: Shop, text: str) -> None:
    """The whole operation is refused: missing rows would reveal the field, too."""
    refused = await ask(office, READER, text)
    assert refused["codes"] == ["FORBIDDEN"], refused
    assert (await ask(office, STAFF, text))["codes"] == []


async def test_a_hidden_field_is_null_with_an_error_at_its_path(
    office: Shop,
) -> None:
    """The other fields of the response are not affected."""
    text = """{ ticket(id: "t") { title margin chiefId chief { name } place { city secret }
      history { nodes { document { title margin place { secret } } } } } }"""
    found = await ask(office, READER, text)
    ticket = found["data"]["ticket"]
    assert ticket["title"] == "x"
    assert ticket["margin"] is ticket["chiefId"] is ticket["chief"] is None
    assert ticket["place"] == {"city": None, "secret": None}
    assert set(found["codes"]) == {"FORBIDDEN"}
    assert ["ticket", "margin"] in found["paths"]
    assert ["ticket", "history", "nodes", 0, "document", "margin"] in found["paths"]
    staff = await ask(office, STAFF, text)
    assert staff["codes"] == []
    assert staff["data"]["ticket"]["margin"] == 78


async def test_diffs_leave_out_hidden_fields(office: Shop) -> None:
    """diff, blame and changedFields leave out a hidden field and its parents."""
    text = """{ ticket(id: "t") { diff(from: 1) { path before after } blame { path value }
      history { nodes { changedFields diff { path before after } } } } }"""
    shown = str(await ask(office, READER, text))
    assert "margin" not in shown
    assert "secret" not in shown
    assert "78" not in shown
    known = str(await ask(office, STAFF, text))
    assert "margin" in known
    assert "secret" in known


async def test_a_caller_without_the_write_role_changes_nothing(office: Shop) -> None:
    """Every mutation is refused, and so is a write of a single protected field."""
    for text in (
        'mutation { updateTicket(id: "t", patch: {title: "y"}) { __typename } }',
        'mutation { replaceTicket(id: "t", document: {owner: "ann"}) { __typename } }',
        'mutation { deleteTicket(id: "t") { __typename } }',
        'mutation { restoreTicket(id: "t", version: 1) { __typename } }',
        'mutation { proposeTicket(id: "t", patch: {title: "y"}) { __typename } }',
        'mutation { publishTicket(id: "t", draft: 1) { __typename } }',
        'mutation { rejectTicket(id: "t", draft: 1) { __typename } }',
        _create("new"),
    ):
        assert (await ask(office, READER, text))["codes"] == ["FORBIDDEN"], text
    for text in (
        'mutation { updateTicket(id: "t", patch: {status: "open"}) { __typename } }',
        'mutation { updateTicket(id: "t", patch: {status: null}) { __typename } }',
        'mutation { updateTicket(id: "t", patch: {place: {secret: "x"}}) { __typename } }',
        'mutation { updateTicket(id: "t", patch: {place: null}) { __typename } }',
        'mutation { restoreTicket(id: "t", version: 1) { __typename } }',
        'mutation { proposeTicket(id: "t", patch: {status: "open"}) { __typename } }',
        _create("new", 'status: "open"'),
    ):
        assert (await ask(office, BOTH, text))["codes"] == ["FORBIDDEN"], text
    assert (await office.gateway.mongo.find("tickets", {"_id": "new"})) == []


async def test_a_replacement_keeps_fields_that_the_caller_may_not_write(office: Shop) -> None:
    """An update of other fields is allowed."""
    await ask(office, STAFF, _create("r", 'status: "open"'))
    text = 'mutation { replaceTicket(id: "r", document: {owner: "ann"}) { __typename } }'
    assert (await ask(office, BOTH, text))["data"] == {
        "replaceTicket": {"__typename": "TicketWritten"}
    }
    (stored,) = await office.gateway.mongo.find("tickets", {"_id": "r"})
    assert stored["status"] == "open"
    assert "title" not in stored


async def test_a_writer_without_the_read_role_gets_a_result_without_content(office: Shop) -> None:
    """The result says that the write succeeded, and shows no content."""
    made = await ask(office, WRITER, _create("w"))
    assert made["codes"] == ["FORBIDDEN"]
    assert made["data"]["made"] == {"__typename": "TicketWritten", "version": 1, "ticket": None}


async def test_an_increment_does_not_reveal_a_hidden_number(office: Shop) -> None:
    """A refusal for the range of the sum would reveal the stored number by bisection."""
    asked = "{ ... on TicketWritten { version } ... on InvalidDocument { path } }"
    for caller in (WRITER, BOTH):
        for number in (1, 2**31 - 1):
            text = f'mutation {{ updateTicket(id: "t", increment: {{margin: {number}}}) {asked} }}'
            assert await ask(office, caller, text) == {
                "data": None,
                "codes": ["FORBIDDEN"],
                "paths": [["updateTicket"]],
            }
    text = f'mutation {{ updateTicket(id: "t", increment: {{margin: {2**31 - 1}}}) {asked} }}'
    refused = await ask(office, STAFF, text)
    assert refused["data"] == {"updateTicket": {"path": "margin"}}
    patched = 'mutation { updateTicket(id: "t", patch: {margin: 78}) { __typename } }'
    assert (await ask(office, BOTH, patched))["codes"] == []


async def test_publishing_requires_the_write_role_only(office: Shop) -> None:
    """A draft is published with the draft on which it is based."""
    await ask(office, STAFF, _create("p"))
    for more in ('title: "one"', "margin: 2"):
        basis = "" if "one" in more else "basedOnDraft: 1, "
        text = f'mutation {{ proposeTicket(id: "p", {basis}patch: {{{more}}}) {{ __typename }} }}'
        assert (await ask(office, BOTH, text))["codes"] == []
    text = 'mutation { publishTicket(id: "p", draft: 2) { __typename } }'
    done = await ask(office, WRITER, text)
    assert done["data"] == {"publishTicket": {"__typename": "TicketWritten"}}, done
    (stored,) = await office.gateway.mongo.find("tickets", {"_id": "p"})
    assert (stored["title"], stored["margin"]) == ("one", 2)


async def test_hidden_documents_are_not_found_and_none_is_transferred(
    office: Shop,
) -> None:
    """Writes, drafts and creations follow the row rule; staff has a rule, too."""
    await ask(office, STAFF, _create("mine"))
    found = await ask(office, OTHER, 'mutation { deleteTicket(id: "mine") { __typename } }')
    assert found["data"] == {"deleteTicket": {"__typename": "DocumentNotFound"}}
    for text in (
        'mutation { updateTicket(id: "mine", patch: {owner: "bob"}) { __typename } }',
        'mutation { updateTicket(id: "mine", expectedVersion: 1, patch: {owner: "bob"}) '
        "{ __typename } }",
        'mutation { proposeTicket(id: "mine", patch: {owner: "bob"}) { __typename } }',
        _create("given", owner="bob"),
    ):
        assert (await ask(office, STAFF, text))["codes"] == ["FORBIDDEN"], text
    (stored,) = await office.gateway.mongo.find("tickets", {"_id": "mine"})
    assert (stored["owner"], stored["version"]) == ("ann", 1)


async def test_a_deletion_does_not_wait_for_the_recorder(
    office: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write itself checks the row rule, and not the archive, which may be behind."""

    async def fail_read(*_: Any) -> None:
        raise AssertionError("waits for the recorder")

    monkeypatch.setattr(office.gateway.progress, "wait", fail_read)
    office.database["tickets"].insert_one({"_id": "brief", "owner": "ann"})
    text = 'mutation { deleteTicket(id: "brief") { __typename } }'
    refused = await ask(office, OTHER, text)
    assert refused["data"] == {"deleteTicket": {"__typename": "DocumentNotFound"}}
    done = await ask(office, STAFF, text)
    assert done["data"] == {"deleteTicket": {"__typename": "TicketWritten"}}
    assert office.database["tickets"].find_one({"_id": "brief"}) is None


async def test_a_reply_to_a_hidden_comment_reveals_nothing(
    office: Shop,
) -> None:
    """The error reveals neither the comment nor its version."""
    text = 'mutation { made: commentOnTicket(id: "t", version: 2, text: "x") { id } }'
    made = (await ask(office, STAFF, text))["data"]["made"]["id"]

    async def refused(id_: str, version: int | None) -> str:
        about = "" if version is None else f"version: {version}, "
        given = f'id: "t", replyTo: "{id_}", {about}text: "y"'
        text = f"mutation {{ commentOnTicket({given}) {{ id }} }}"
        context = context_of(office.gateway, caller=OTHER)
        (error,) = (await office.schema.execute(text, {}, context)).errors or ()
        return error.message.replace(id_, "that")

    for version in (None, 1, 2):
        assert await refused(made, version) == await refused("f" * 24, version)


async def test_a_stored_result_is_not_returned_to_a_caller_without_access(office: Shop) -> None:
    """The idempotency key is the same, and the caller has the same name but other roles."""
    first = await ask(office, STAFF, _create("once"), key="k")
    assert first["data"]["made"]["__typename"] == "TicketWritten"
    again = await ask(office, STAFF, _create("once"), key="k")
    assert again == first
    no_longer = Principal(name="ann", roles=frozenset({"staff"}), claims={})
    assert (await ask(office, no_longer, _create("once"), key="k")) == first


async def test_applying_requires_the_role_to_read_the_fence_value(office: Shop) -> None:
    """Otherwise the result STALE would reveal the fence value."""
    text = 'mutation { applyGauge(id: "g", document: {owner: "ann", sequence: 5}) {__typename} }'
    assert (await ask(office, BOTH, text))["codes"] == ["FORBIDDEN"]
    assert (await ask(office, STAFF, text))["codes"] == []


APPLIED = "__typename ... on WriteError { message }"


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_the_stored_document_decides_whether_an_event_may_be_applied(
    office: Shop, batch: bool
) -> None:
    """The event does not decide: protected fields keep their stored values."""

    async def apply(id_: str, more: str, caller: Principal = STAFF) -> Any:
        given = f'id: "{id_}", document: {{sequence: 2, weight: 2, {more}}}'
        one = f"applyParcel({given}) {{ {APPLIED} }}"
        text = f"applyParcels(events: [{{{given}}}]) {{ applied }}" if batch else one
        found = await ask(office, caller, f"mutation {{ {text} }}")
        return found["codes"] or next(iter(found["data"].values()))

    done = {"applied": 1} if batch else {"__typename": "ParcelWritten"}
    parcels = office.database["parcels"]
    parcels.delete_many({})
    parcels.insert_many(
        [
            {"_id": "hers", "owner": "ann", "sealed": True, "sequence": 1},
            {"_id": "open", "owner": "bob", "sequence": 1},
            {"_id": "his", "owner": "bob", "sealed": True, "sequence": 1},
        ]
    )
    # Her document, which stays hers although the event lacks the owner.
    assert await apply("hers", "sealed: true") == done
    # Visible to her now, but not after the event.
    chief = Principal(name="ann", roles=frozenset({"chief"}))
    assert await apply("open", "sealed: true") == ["FORBIDDEN"]
    assert await apply("open", 'sealed: true, owner: "carl"', chief) == ["FORBIDDEN"]
    # Hers after the event, but not now.
    refused = await apply("his", 'owner: "ann"', chief)
    assert refused == ["FORBIDDEN"] if batch else refused["__typename"] == "DocumentNotFound"
    assert await apply("new", "sealed: true") == ["FORBIDDEN"]
    assert await apply("open", "") == done
    stored = {each["_id"]: (each.get("owner"), each["sequence"]) for each in parcels.find()}
    assert stored == {"hers": ("ann", 2), "open": ("bob", 2), "his": ("bob", 1)}


async def test_concurrent_first_events_under_a_row_rule_leave_the_newest(
    office: Shop,
) -> None:
    """The newest event of each document stays, single or in a batch, and the others are stale."""

    def event(id_: str, n: int) -> str:
        given = f'id: "{id_}", document: {{owner: "ann", sequence: {n}}}'
        if n % 3:
            return f"mutation {{ applyGauge({given}) {{ __typename }} }}"
        return f"mutation {{ applyGauges(events: [{{{given}}}]) {{ applied stale }} }}"

    ids = [f"meet-{turn}" for turn in range(10)]
    for id_ in ids:
        found = await asyncio.gather(*(ask(office, STAFF, event(id_, n)) for n in range(1, 21)))
        assert [each["codes"] for each in found] == [[]] * 20
        told = {str(each["data"]["applyGauge"]) for each in found if "applyGauge" in each["data"]}
        assert told <= {"{'__typename': 'GaugeWritten'}", "{'__typename': 'StaleWrite'}"}
    stored = {each["_id"]: each["sequence"] for each in office.database["gauges"].find()}
    assert [stored[id_] for id_ in ids] == [20] * 10


@pytest.mark.timeout(60)
@pytest.mark.parametrize("key", [None, "a key"])
async def test_an_id_equal_to_another_by_collation_is_refused_at_once(
    office: Shop, key: str | None
) -> None:
    """A transaction, which such a refusal aborts, is not retried for minutes."""
    dials = office.database["dials"]
    dials.drop()
    office.database.create_collection("dials", collation={"locale": "en", "strength": 2})
    dials.insert_one({"_id": "A", "owner": "ann", "sequence": 1})
    given = '{id: "a", document: {owner: "ann", sequence: 5}}'
    text = f"mutation {{ applyDials(events: [{given}]) {{ applied }} }}"
    assert (await ask(office, STAFF, text, key))["codes"] == ["BAD_USER_INPUT"]
    assert [*dials.find()] == [{"_id": "A", "owner": "ann", "sequence": 1}]


async def test_a_total_counts_all_rows_of_the_caller_on_each_page(
    office: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The total is complete, also where versions are filtered one by one in several portions."""
    monkeypatch.setattr(row_filtered_pages, "_PORTION", 3)
    memos = office.database["memos"]
    memos.insert_one({"_id": "m", "owner": "ann", "n": 0, "filler": "x" * 500})
    for n in range(1, 13):
        memos.update_one({"_id": "m"}, {"$set": {"n": n, "owner": "bob" if n % 3 else "ann"}})
    await office.recorded()
    assert office.database["memos.versions"].count_documents({"packed": True}) > 0
    shown = "totalCount nodes { version } pageInfo { endCursor }"
    for text in (
        'memo(id: "m") {{ page: history(first: 1{after}) {{ {shown} }} }}',
        "page: memoVersions(first: 1{after}) {{ {shown} }}",
    ):
        after, seen = "", []
        for _ in range(5):
            asked = text.format(after=after, shown=shown)
            data = (await ask(office, STAFF, f"{{ {asked} }}"))["data"]
            page = data.get("page") or data["memo"]["page"]
            assert page["totalCount"] == 5
            seen += [each["version"] for each in page["nodes"]]
            after = f', after: "{page["pageInfo"]["endCursor"]}"'
        assert seen == [13, 10, 7, 4, 1]


async def test_a_transfer_by_an_event_is_checked_against_the_whole_document(office: Shop) -> None:
    """The event alone would match the rule: it lacks the field `seal`, which stays."""
    lodgers = office.database["lodgers"]
    lodgers.insert_one({"_id": "l", "owner": "ann", "sealed": True, "sequence": 1})
    text = 'id: "l", document: {owner: "bob", sequence: 2}'
    one = f"mutation {{ applyLodger({text}) {{ __typename }} }}"
    many = f"mutation {{ applyLodgers(events: [{{{text}}}]) {{ applied }} }}"
    for each in (one, many):
        assert (await ask(office, STAFF, each))["codes"] == ["FORBIDDEN"], each
    assert lodgers.find_one() == {"_id": "l", "owner": "ann", "sealed": True, "sequence": 1}


async def test_a_document_that_leaves_the_rows_is_a_leave_without_content(office: Shop) -> None:
    """One that enters is an ENTER, and changes of hidden documents are not sent."""
    text = """subscription { ticketChanges { kind operation transition documentId version author
      comment changedFields diff { path } before { title } ticket { title } } }"""
    context = context_of(office.gateway, caller=READER)
    tickets = office.database["tickets"]
    results: Any = await office.schema.subscribe(text, {}, context)
    async with aclosing(results) as events:
        following = office.gateway.services.live.following
        begun = anext(events)
        task = asyncio.ensure_future(begun)
        await eventually(lambda: following["tickets"] > 0)
        tickets.insert_one({"_id": "live", "owner": "bob", "title": "secret"})
        tickets.update_one({"_id": "live"}, {"$set": {"owner": "ann", "title": "hers"}})
        tickets.update_one({"_id": "live"}, {"$set": {"owner": "bob", "title": "secret"}})
        tickets.update_one({"_id": "live"}, {"$set": {"title": "secret still"}})
        tickets.insert_one({"_id": "last", "owner": "ann"})
        told = [(await task).data["ticketChanges"]]
        while told[-1]["documentId"] != "last":
            told.append((await anext(events)).data["ticketChanges"])
    came, left, _ = (each for each in told if each["kind"] == "CHANGE")
    assert (came["transition"], came["ticket"]) == ("ENTER", {"title": "hers"})
    assert came["before"] is None
    assert "secret" not in str(told)
    assert left["transition"] == "LEAVE"
    assert {name for name, value in left.items() if value} == {"kind", "transition", "documentId"}


async def test_an_anonymous_caller_has_no_roles(office: Shop) -> None:
    """Without any way to authenticate the application does not start."""
    refused = await ask(office, ANONYMOUS, '{ ticket(id: "t") { title } }')
    assert refused["codes"] == ["FORBIDDEN"]
    with pytest.raises(ValueError, match="@access"):
        create_app(office.gateway)
