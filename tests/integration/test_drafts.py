"""Drafts: proposed on a version or on another draft, and published against the current document, or
rejected.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from revstream.resolvers.mutations.expected_version import ExpectedVersions
from revstream.streams.core.traceparent import TRACEPARENT
from tests.support.editing import Row, Shop, lamp, pick

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def propose(shop: Shop, id_: str, patch: Row, **given: Any) -> Row:
    """Propose a draft and return it."""
    result = await shop.mutate("proposeProduct", id=id_, patch=patch, **given)
    assert result["__typename"] == "ProductDrafted", result
    draft: Row = result["draft"]
    return draft


async def publish(shop: Shop, id_: str, draft: int, **given: Any) -> Row:
    result: Row = await shop.mutate("publishProduct", id=id_, draft=draft, **given)
    return result


async def test_a_draft_changes_nothing_until_it_is_published(shop: Shop) -> None:
    """It has a preview of the document, and no version is created."""
    id_ = await shop.create()
    before = await shop.present(id_)
    draft = await propose(shop, id_, {"name": "Torch", "attributes": {"volt": 12}}, author="dan")
    assert (draft["number"], draft["status"], draft["basedOn"]) == (1, "PROPOSED", 1)
    assert draft["author"] == "dan"
    assert pick(draft["diff"], "path", "before", "after") == [
        ("name", "Lamp", "Torch"),
        ("attributes.volt", 230, 12),
    ]
    assert draft["document"]["name"] == "Torch"
    assert await shop.present(id_) == before
    assert pick(await shop.history(id_), "version") == [1]


async def test_a_published_draft_is_the_next_version(shop: Shop) -> None:
    """The version has its draft, its author, its approver, and the trace of the publication."""
    id_ = await shop.create()
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    TRACEPARENT.set(trace.replace("4bf9", "0000"))
    await propose(shop, id_, {"name": "Torch"}, author="dan", comment="nicer")
    TRACEPARENT.set(trace)
    result = await publish(shop, id_, 1, author="eve", comment="agreed")
    TRACEPARENT.set(None)
    assert (result["version"], result["product"]["name"]) == (2, "Torch")
    last = (await shop.history(id_))[-1]
    assert (last["operation"], last["fromDraft"]) == ("UPDATE", 1)
    assert (last["author"], last["comment"], last["traceparent"]) == ("eve", "agreed", trace)
    assert last["draft"] == {
        "author": "dan",
        "comment": "nicer",
        "decidedBy": "eve",
        "decidedComment": "agreed",
    }
    (draft,) = await shop.drafts(id_)
    assert (draft["status"], draft["publishedAs"]) == ("PUBLISHED", 2)


async def test_publishing_the_second_of_a_chain_publishes_the_first_with_it(shop: Shop) -> None:
    """One version has the changes of both."""
    id_ = await shop.create()
    await propose(shop, id_, {"name": "Torch"})
    second = await propose(shop, id_, {"stock": 9}, basedOnDraft=1)
    assert (second["basedOn"], second["basedOnDraft"]) == (1, 1)
    assert pick(second["diff"], "path") == ["stock"]
    result = await publish(shop, id_, 2)
    assert (result["product"]["name"], result["product"]["stock"]) == ("Torch", 9)
    assert pick(await shop.drafts(id_), "status", "publishedAs") == [("PUBLISHED", 2)] * 2
    assert pick(await shop.history(id_), "fromDraft") == [None, 2]


async def test_publishing_the_first_of_a_chain_leaves_the_second_to_be_published(
    shop: Shop,
) -> None:
    """The second is then based on the version that the first has become."""
    id_ = await shop.create()
    await propose(shop, id_, {"name": "Torch"})
    await propose(shop, id_, {"name": "Torch 2", "stock": 9}, basedOnDraft=1)
    assert (await publish(shop, id_, 1))["version"] == 2
    assert pick(await shop.drafts(id_), "status") == ["PUBLISHED", "PROPOSED"]
    result = await publish(shop, id_, 2)
    assert (result["version"], result["product"]["name"]) == (3, "Torch 2")


async def test_a_draft_is_rebased_on_changes_of_other_fields(shop: Shop) -> None:
    """Changes by the gateway's clients and by other programs are kept."""
    id_ = await shop.create()
    await propose(shop, id_, {"name": "Torch", "attributes": {"box": {"x": 7}}})
    await shop.mutate("updateProduct", id=id_, patch={"attributes": {"box": {"y": 8}}})
    shop.database["products"].update_one({"_id": id_}, {"$set": {"stock": 77}})
    result = await publish(shop, id_, 1)
    product = result["product"]
    assert (result["version"], product["name"], product["stock"]) == (4, "Torch", 77)
    assert product["attributes"]["box"] == {"x": 7, "y": 8}


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"name": "Torch"}, {"name": "Candle"}),
        ({"attributes": {"box": {"x": 7}}}, {"attributes": None}),
        ({"attributes": None}, {"attributes": {"box": {"x": 7}}}),
        ({"tags": ["a"]}, {"tags": ["b"]}),
        ({"dimensions": {"width": 1, "height": 1}}, {"dimensions": {"width": 2, "height": 2}}),
    ],
)
async def test_a_stale_draft_is_a_conflict_if_the_same_fields_changed(
    shop: Shop, mine: Row, theirs: Row
) -> None:
    """A field that contains the other, or is inside it, counts, too; nothing is written.

    The draft stays proposed.
    """
    id_ = await shop.create()
    await propose(shop, id_, mine)
    await shop.mutate("updateProduct", id=id_, patch=theirs)
    result = await publish(shop, id_, 1)
    assert result["__typename"] == "VersionConflict"
    assert (result["expectedVersion"], result["actualVersion"]) == (1, 2)
    assert result["current"]["version"] == 2
    assert pick(await shop.drafts(id_), "status") == ["PROPOSED"]
    assert pick(await shop.history(id_), "version") == [1, 2]


async def test_a_rejected_draft_is_not_published(shop: Shop) -> None:
    """It has the rejecting author and the reason, and cannot be rejected again."""
    id_ = await shop.create()
    await propose(shop, id_, {"name": "Torch"})
    result = await shop.mutate("rejectProduct", author="eve", id=id_, draft=1, comment="no")
    draft = result["draft"]
    assert (draft["status"], draft["decidedBy"], draft["decidedComment"]) == (
        "REJECTED",
        "eve",
        "no",
    )
    for result in (
        await publish(shop, id_, 1),
        await shop.mutate("rejectProduct", id=id_, draft=1),
    ):
        assert (result["__typename"], result["path"]) == ("InvalidDocument", "draft")
        assert "rejected" in result["message"]
    assert pick(await shop.history(id_), "version") == [1]


async def test_a_draft_on_a_rejected_one_is_not_published(shop: Shop) -> None:
    """A new draft on the rejected one is refused, too."""
    id_ = await shop.create()
    await propose(shop, id_, {"name": "Torch"})
    await propose(shop, id_, {"stock": 9}, basedOnDraft=1)
    await shop.mutate("rejectProduct", id=id_, draft=1)
    result = await publish(shop, id_, 2)
    assert (result["__typename"], result["path"]) == ("InvalidDocument", "draft")
    result = await shop.mutate("proposeProduct", id=id_, patch={"stock": 1}, basedOnDraft=1)
    assert (result["__typename"], result["path"]) == ("InvalidDocument", "basedOnDraft")
    assert pick(await shop.drafts(id_), "status") == ["REJECTED", "PROPOSED"]


async def test_a_published_draft_is_reverted_by_restoring_the_version_before(shop: Shop) -> None:
    """It stays published: history is not undone."""
    id_ = await shop.create()
    before = await shop.present(id_)
    await propose(shop, id_, {"name": "Torch", "sold": 1})
    await publish(shop, id_, 1)
    result = await shop.mutate("restoreProduct", id=id_, version=1, comment="not after all")
    assert before is not None
    assert result["product"] == {**before, "version": 3}
    assert pick(await shop.history(id_), "fromDraft", "restoredFrom") == [
        (None, None),
        (1, None),
        (None, 1),
    ]
    assert pick(await shop.drafts(id_), "status") == ["PUBLISHED"]


async def test_a_draft_on_a_published_one_is_based_on_its_version(shop: Shop) -> None:
    """Its base is the version that the first draft has become."""
    id_ = await shop.create()
    await propose(shop, id_, {"name": "Torch"})
    await shop.mutate("updateProduct", id=id_, patch={"stock": 6})
    assert (await publish(shop, id_, 1))["version"] == 3
    draft = await propose(shop, id_, {"sold": 4}, basedOnDraft=1)
    assert (draft["basedOn"], draft["basedOnDraft"]) == (3, 1)
    result = await publish(shop, id_, 2)
    product = result["product"]
    assert (product["name"], product["stock"], product["sold"]) == ("Torch", 6, 4)


async def test_a_draft_published_meanwhile_is_reported_as_decided(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is not a conflict about changed fields."""
    id_ = await shop.create()
    await propose(shop, id_, {"name": "Torch"})
    now = ExpectedVersions.now
    quicker: list[str] = []

    async def late(expected_versions: ExpectedVersions, entity: Any, key: Any) -> Any:
        if not quicker:
            quicker.append("eve")
            assert (await publish(shop, id_, 1, author="eve"))["__typename"] == "ProductWritten"
        return await now(expected_versions, entity, key)

    monkeypatch.setattr(ExpectedVersions, "now", late)
    assert (await publish(shop, id_, 1))["__typename"] == "InvalidDocument"


async def test_concurrent_publications_publish_a_draft_once(shop: Shop) -> None:
    """The other caller gets the error that the draft is decided."""
    id_ = await shop.create()
    await propose(shop, id_, {"name": "Torch"})
    results = await asyncio.gather(
        *(publish(shop, id_, 1, author=author) for author in ("eve", "fay", "gus"))
    )
    kinds = sorted(each["__typename"] for each in results)
    assert kinds == ["InvalidDocument", "InvalidDocument", "ProductWritten"]
    assert pick(await shop.history(id_), "fromDraft") == [None, 1]


async def test_two_drafts_published_at_once_are_both_applied(shop: Shop) -> None:
    """They change different fields, and one is rebased on the other."""
    id_ = await shop.create()
    await propose(shop, id_, {"name": "Torch"})
    await propose(shop, id_, {"stock": 9})
    results = await asyncio.gather(publish(shop, id_, 1), publish(shop, id_, 2))
    assert sorted(each["version"] for each in results) == [2, 3]
    found = await shop.present(id_)
    assert found is not None
    assert (found["name"], found["stock"]) == ("Torch", 9)


async def test_drafts_proposed_at_once_have_distinct_numbers(shop: Shop) -> None:
    """Numbers count from 1, without a hole."""
    id_ = await shop.create()
    drafts = await asyncio.gather(*(propose(shop, id_, {"stock": n}) for n in range(5)))
    assert sorted(each["number"] for each in drafts) == [1, 2, 3, 4, 5]


async def test_a_draft_is_proposed_on_an_older_version(shop: Shop) -> None:
    """A version that never existed is refused."""
    id_ = await shop.create()
    await shop.mutate("updateProduct", id=id_, patch={"stock": 6})
    draft = await propose(shop, id_, {"name": "Torch"}, basedOn=1)
    assert (draft["basedOn"], draft["document"]["stock"]) == (1, 5)
    result = await shop.mutate("proposeProduct", id=id_, patch={"name": "x"}, basedOn=7)
    assert (result["__typename"], result["actualVersion"]) == ("VersionConflict", 2)
    assert (await publish(shop, id_, 1))["product"]["stock"] == 6


async def test_a_draft_of_a_deleted_document_is_published_once_it_is_restored(shop: Shop) -> None:
    """Until then publication is refused."""
    id_ = await shop.create()
    await propose(shop, id_, {"name": "Torch"})
    await shop.mutate("deleteProduct", id=id_)
    assert (await publish(shop, id_, 1))["__typename"] == "DocumentNotFound"
    result = await shop.mutate("proposeProduct", id=id_, patch={"stock": 1})
    assert result["__typename"] == "DocumentNotFound"
    await shop.mutate("restoreProduct", id=id_, version=1)
    assert (await publish(shop, id_, 1))["product"]["name"] == "Torch"


async def test_a_draft_whose_unique_value_was_taken_stays_proposed(shop: Shop) -> None:
    """Draft states change in the transaction of the write, or not at all."""
    id_, taken = await shop.create(), shop.fresh_id()
    await propose(shop, id_, {"sku": taken})
    await shop.mutate("createProduct", document=lamp(taken))
    result = await publish(shop, id_, 1)
    assert (result["__typename"], result["path"]) == ("AlreadyExists", "sku")
    assert pick(await shop.drafts(id_), "status") == ["PROPOSED"]


async def test_an_invalid_draft_is_refused(shop: Shop) -> None:
    """The rules are those of an update."""
    id_ = await shop.create()
    patch = {"dimensions": {"width": 1}}
    result = await shop.mutate("proposeProduct", id=id_, patch=patch)
    assert (result["__typename"], result["path"]) == ("InvalidDocument", "dimensions.height")
    assert await shop.drafts(id_) == []
