"""Back references as of moments, compared with a plain replay of the writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson.objectid import ObjectId
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from revstream.model.definition import Access, BackReference, Model, Storage
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.access.principal import ANONYMOUS
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.history.as_of import referring_documents
from revstream.resolvers.history.as_of.referring_documents import WantedReferrers
from revstream.resolvers.history.versions import VersionHistory
from revstream.resolvers.pagination.page import PageRequest
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.streams.archive.indexes import referring_fields
from revstream.streams.archive.store import Archive
from revstream.streams.mongo.database import Mongo
from tests.integration.conftest import Commands
from tests.integration.test_as_of import expected, replayed
from tests.support.archives import Scribe, at, nothing_written
from tests.support.exhaustive import examples
from tests.support.shop import PRODUCT, SHOP, SUPPLIER

_BACK = BackReference(name="products", target="Product", field="supplierId")
MODEL = Model(entities=(PRODUCT, replace(SUPPLIER, back_references=(_BACK,))))
OWNED = replace(PRODUCT, access=Access(rows="{stock: {gte: 1}}"))
GUARDED = replace(SHOP, entities=(OWNED, SUPPLIER))
SUPPLIERS = [ObjectId(f"{n:024d}") for n in range(3)]
WRITES = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.none()
        | st.fixed_dictionaries(
            {"supplier": st.sampled_from([*SUPPLIERS, None]), "stock": st.integers(0, 3)},
            optional={"name": st.sampled_from(["x", "y"])},
        ),
        st.sampled_from([0, 1, 1, 2]),
    ),
    max_size=30,
)
WHERES = st.sampled_from([None, {"stock": {"gte": 2}}, {"name": {"exists": False}}])
ORDERS = st.sampled_from(
    [(), (("id", "DESC"),), (("stock", "DESC"),), (("name", "ASC"), ("stock", "DESC"))]
)


@pytest.mark.parametrize("way", ["index", "sweep", "packed"])
@settings(
    deadline=None,
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    data=st.data(),
    writes=WRITES,
    said=WHERES,
    order=ORDERS,
    size=st.integers(1, 4),
    forwards=st.booleans(),
    limited=st.booleans(),
)
async def test_pages_equal_those_of_a_plain_replay(
    mongo: Mongo,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    data: st.DataObject,
    writes: list[tuple[str, dict[str, Any] | None, int]],
    said: dict[str, Any] | None,
    order: tuple[tuple[str, str], ...],
    size: int,
    forwards: bool,
    limited: bool,
) -> None:
    """Each document at each moment has the pages of the replay, with and without a row rule."""
    monkeypatch.setattr(referring_documents, "_PORTION", 2)
    monkeypatch.setattr(referring_documents, "_MOST_UNSORTED", 2)
    monkeypatch.setattr("revstream.streams.versioning.content_encoding._WORTH_IT", 0)
    await mongo.command({"delete": "products.versions", "deletes": [{"q": {}, "limit": 0}]})
    entity = replace(PRODUCT, storage=Storage.DELTA) if way == "packed" else PRODUCT
    scribe = Scribe(mongo, entity)
    second, near = 0, {0}
    for key, body, pause in writes:
        second += pause
        near |= {second - 1, second, second + 1}
        if body is not None or key in scribe.present:
            scribe.write(key, body, at(second, 1))
    await scribe.save()
    archive = Archive(mongo, "products", references=["supplier"] if way == "index" else [])
    await archive.prepare()
    assert await archive.finds_references("supplier") is (way == "index")
    history: Any = VersionHistory(mongo, {"products": archive}, nothing_written())
    if limited:
        history = history.within(Scope(GUARDED, ANONYMOUS))
    moments = st.lists(st.sampled_from(sorted(near)), min_size=1, max_size=2)
    wanted = [
        WantedReferrers([supplier], at(moment))
        for moment in data.draw(moments, label="moments")
        for supplier in SUPPLIERS
    ]
    pages: list[list[Any]] = [[] for _ in wanted]
    requests = [PageRequest(first=size) if forwards else PageRequest(last=size)] * len(wanted)
    totals = [0] * len(wanted)
    waiting = list(range(len(wanted)))
    while waiting:
        unfinished = []
        for n in waiting:
            # The first time, all of them are one read.
            group = waiting if not any(pages) and n == waiting[0] else [n]
            query = PageQuery(
                where=None if said is None else parse_where(SHOP, PRODUCT, said),
                order=order,
                page=requests[n],
                fields=frozenset({"stock"}),
                total=True,
            )
            found = await history.referring_as_of(
                OWNED if limited else PRODUCT, "supplier", [wanted[each] for each in group], query
            )
            page = found[0]
            items = [(each.document, each.number, each.full["stock"]) for each in page.items]
            pages[n] = pages[n] + items if forwards else items + pages[n]
            totals[n] = page.total
            if page.has_next if forwards else page.has_previous:
                requests[n] = (
                    PageRequest(first=size, after=page.cursors[-1])
                    if forwards
                    else PageRequest(last=size, before=page.cursors[0])
                )
                unfinished.append(n)
        waiting = unfinished
    for n, each in enumerate(wanted):
        state = {
            key: (number, full)
            for key, (number, full) in _state(scribe, each).items()
            if full["supplier"] == each.keys[0] and (not limited or full["stock"] >= 1)
        }
        ids = expected(state, said, order)
        assert pages[n] == [(key, state[key][0], state[key][1]["stock"]) for key in ids]
        assert totals[n] == len(ids)


def _state(scribe: Scribe, wanted: WantedReferrers) -> dict[str, tuple[int, dict[str, Any]]]:
    return replayed(scribe, wanted.at.time - at(0).time)


async def test_many_moments_are_one_read(counted: Mongo, commands: Commands) -> None:
    """Documents and moments are one aggregation with the index of the reference."""
    scribe = Scribe(counted, PRODUCT)
    for n in range(60):
        scribe.write(n, {"supplier": SUPPLIERS[n % 3], "stock": n}, at(n))
    await scribe.save()
    archive = Archive(counted, "products", references=referring_fields(MODEL, "products"))
    await archive.prepare()
    history = VersionHistory(counted, {"products": archive}, nothing_written())
    query: PageQuery[Any] = PageQuery(page=PageRequest(first=30), fields=frozenset({"stock"}))
    wanted = [WantedReferrers([each], at(n)) for n in (5, 20, 59) for each in SUPPLIERS]
    await history.referring_as_of(PRODUCT, "supplier", wanted[:1], query)
    with commands.counting() as started:
        pages = await history.referring_as_of(PRODUCT, "supplier", wanted, query)
    # Whether there are packed contents, the pages, and the coverage.
    assert started == ["find", "aggregate", "find"]
    counts = [len(each.items) for each in pages]  # type: ignore[union-attr]
    assert counts == [2, 2, 2, 7, 7, 7, 20, 20, 20]
