"""Random steps, executed by the gateway or another program, and by the plain model.

The model predicts each answer.
"""

from __future__ import annotations

from datetime import datetime
from functools import singledispatchmethod
from typing import Any
from uuid import uuid4

from bson import Decimal128, Int64

from tests.support import editing_steps as steps
from tests.support.editing import Row, lamp, without
from tests.support.editing_story import Story, diff_rows
from tests.support.plain_model import (
    PlainDocument,
    PlainDraft,
    api_changes,
    api_content,
    merge_patch,
    overlap,
    published_content,
)

Content = dict[str, Any]


class Run(Story):
    """A sequence of steps, executed by the gateway and by the model alike."""

    async def begin(self) -> None:
        """Create one document by the gateway, and one by the driver, which has no version field."""
        second = self.documents[1]
        await self.take(
            steps.Create(doc=0, author="ann", comment=None, twice=False, document=lamp("s0"))
        )
        content = stored_content(lamp("s1"), second)
        self.collection.insert_one({"_id": second.id, **content})
        self.wrote(1, "INSERT", content)

    async def take(self, step: steps.Step) -> None:
        self.count += 1
        await self.step(step)

    @singledispatchmethod
    async def step(self, step: Any) -> None:
        raise TypeError(f"nobody has said how to take {step!r}")

    # Steps of clients of the gateway.

    @step.register
    async def _(self, step: steps.Create) -> None:
        doc = self.documents[step.doc]
        content = stored_content(step.document, doc)
        refused = None
        if doc.content is not None:
            refused = {"__typename": "AlreadyExists", "path": "id"}
        elif self.taken(doc, content):
            refused = {"__typename": "AlreadyExists", "path": "sku"}
        else:
            self.wrote(step.doc, "INSERT", content, step=step)
        await self.mutated("create", step, refused, document=step.document)

    @step.register
    async def _(self, step: steps.Update) -> None:
        doc = self.documents[step.doc]
        increment = {n: v for n, v in step.increment.items() if n not in step.patch}
        expected = expectation(doc, step.expect)
        refused = self.against(doc, expected)
        if refused is None:
            assert doc.content is not None
            content = merge_patch(doc.content, stored_patch(step.patch))
            for name, value in stored_patch(increment).items():
                content[name] = added(content.get(name), value)
            refused = self.unfit(content) or self.duplicate(doc, content)
            if refused is None:
                self.wrote(step.doc, "UPDATE", content, expected, step=step)
        given = {"patch": step.patch, "increment": increment, "expectedVersion": expected}
        await self.mutated("update", step, refused, **given)

    @step.register
    async def _(self, step: steps.Replace) -> None:
        doc = self.documents[step.doc]
        expected = expectation(doc, step.expect)
        refused = self.against(doc, expected)
        if refused is None:
            content = stored_content(step.document, doc)
            refused = self.duplicate(doc, content)
            if refused is None:
                self.wrote(step.doc, "REPLACE", content, expected, step=step)
        await self.mutated(
            "replace", step, refused, document=step.document, expectedVersion=expected
        )

    @step.register
    async def _(self, step: steps.Delete) -> None:
        doc = self.documents[step.doc]
        expected = expectation(doc, step.expect)
        refused = self.against(doc, expected)
        if refused is None:
            self.wrote(step.doc, "DELETE", None, step=step)
        await self.mutated("delete", step, refused, expectedVersion=expected)

    @step.register
    async def _(self, step: steps.Restore) -> None:
        doc = self.documents[step.doc]
        expected = expectation(doc, step.expect)
        old = doc.versions[max(-len(doc.versions), -1 - step.back)]
        refused: Row | None
        if old.content is None:
            refused = {"__typename": "DocumentNotFound"}
        elif expected is not None and expected != doc.number:
            refused = self.conflict(doc, expected)
            if doc.content is not None:
                refused = self.against(doc, expected)
        else:
            content = dict(old.content)
            refused = self.duplicate(doc, content)
        if refused is None:
            restored = {"restored_from": old.number}
            if doc.content is None:
                if self.counted:
                    content["version"] = doc.number + 1
                self.wrote(step.doc, "INSERT", content, step=step, exact=True, **restored)
            else:
                content.pop("version", None)
                self.wrote(step.doc, "REPLACE", content, expected, step=step, **restored)
        given = {"version": old.number, "expectedVersion": expected}
        await self.mutated("restore", step, refused, **given)

    @step.register
    async def _(self, step: steps.Propose) -> None:
        doc = self.documents[step.doc]
        given: Row = {"patch": step.patch}
        based, base, on_draft, refused = doc.number, doc.content, None, None
        if doc.content is None:
            refused = {"__typename": "DocumentNotFound"}
        elif step.on_draft is not None and doc.drafts:
            draft = doc.drafts[max(-len(doc.drafts), -1 - step.on_draft)]
            given["basedOnDraft"] = on_draft = draft.number
            based, base = draft.published_as or draft.based_on, draft.full
            if draft.status == "REJECTED":
                refused = {"__typename": "InvalidDocument", "path": "basedOnDraft"}
        elif step.on_version is not None:
            version = doc.versions[max(-len(doc.versions), -1 - step.on_version)]
            given["basedOn"] = based = version.number
            base = version.content
            if base is None:
                refused = self.conflict(doc, based)
        if refused is None:
            assert base is not None
            full = merge_patch(base, stored_patch(step.patch))
            refused = self.unfit(full)
            if refused is None:
                draft = PlainDraft(len(doc.drafts) + 1, based, on_draft, base, full)
                doc.drafts.append(draft)
        result = await self.sent("propose", step, given)
        if refused is not None:
            assert_refused(result, refused)
        else:
            assert without(result["draft"]["document"], "id") == api_content(full), result
            assert diff_rows(result["draft"]["diff"]) == api_changes(base, full)

    @step.register
    async def _(self, step: steps.Publish) -> None:
        doc = self.documents[step.doc]
        if not doc.drafts:
            return
        draft = doc.drafts[max(-len(doc.drafts), -1 - step.back)]
        chain = doc.chain(draft)
        refused: Row | None = None
        if draft.status != "PROPOSED" or chain is None:
            refused = {"__typename": "InvalidDocument", "path": "draft"}
        elif doc.content is None:
            refused = {"__typename": "DocumentNotFound"}
        else:
            number = doc.joint(chain[0])
            joint = doc.numbered(number)
            assert joint is not None
            assert joint.content is not None
            if overlap(chain[0].base, draft.full, joint.content, doc.content):
                refused = self.conflict(doc, number)
            else:
                content = published_content(chain, doc.content)
                refused = self.duplicate(doc, content)
        if refused is None:
            assert chain is not None
            self.wrote(step.doc, "UPDATE", content, doc.number, step=step, draft=draft.number)
            for each in chain:
                each.status, each.published_as = "PUBLISHED", doc.number
        await self.mutated("publish", step, refused, draft=draft.number)

    @step.register
    async def _(self, step: steps.Reject) -> None:
        doc = self.documents[step.doc]
        if not doc.drafts:
            return
        draft = doc.drafts[max(-len(doc.drafts), -1 - step.back)]
        result = await self.sent("reject", step, {"draft": draft.number})
        if draft.status == "PROPOSED":
            draft.status = "REJECTED"
            assert result["draft"]["status"] == "REJECTED", result
        else:
            assert_refused(result, {"__typename": "InvalidDocument", "path": "draft"})

    # Steps of other programs, with the driver.

    @step.register
    async def _(self, step: steps.DriverUpdate) -> None:
        doc = self.documents[step.doc]
        if doc.content is None:
            return
        update, content = self.plain_update(doc.content, step.change, step.counts)
        more = {}
        if step.says:
            update["$set"]["_change"] = {"id": uuid4().hex, "by": "robot", "why": "a rule"}
            more = {"author": "robot", "comment": "a rule"}
        self.collection.update_one({"_id": doc.id}, update)
        self.wrote(step.doc, "UPDATE", content, exact=True, **more)

    @step.register
    async def _(self, step: steps.DriverReplace) -> None:
        doc = self.documents[step.doc]
        if doc.content is None:
            return
        content = {**step.document, "sku": doc.content["sku"], "unique": self.count}
        if step.counts and self.counted:
            content["version"] = doc.number + 1
        if step.backwards:
            content = dict(reversed(content.items()))
        self.collection.replace_one({"_id": doc.id}, content)
        self.wrote(step.doc, "REPLACE", content, exact=True)

    @step.register
    async def _(self, step: steps.DriverDelete) -> None:
        doc = self.documents[step.doc]
        if self.collection.delete_one({"_id": doc.id}).deleted_count:
            self.wrote(step.doc, "DELETE", None)

    @step.register
    async def _(self, step: steps.DriverInsert) -> None:
        doc = self.documents[step.doc]
        content = {**step.document, "sku": f"s{step.doc + 3}"}
        if doc.content is not None or self.taken(doc, content):
            return
        if step.counts and self.counted:
            content["version"] = 1
        self.collection.insert_one({"_id": doc.id, **content})
        self.wrote(step.doc, "INSERT", content, exact=True)

    @step.register
    async def _(self, step: steps.Transaction) -> None:
        places = [step.doc, (step.doc + 1) % steps.DOCUMENTS, step.doc]
        if any(self.documents[each].content is None for each in places):
            return
        group: list[int] = []
        with (
            self.shop.database.client.start_session() as session,
            session.start_transaction(),
        ):
            for place in places:
                doc = self.documents[place]
                self.count += 1
                assert doc.content is not None
                update, content = self.plain_update(doc.content, "stock", step.counts)
                self.collection.update_one({"_id": doc.id}, update, session=session)
                doc.write("UPDATE", content)
                group.append(place)
        self.log.append(group)

    @step.register
    async def _(self, step: steps.Touch) -> None:
        doc = self.documents[step.doc]
        if doc.content is not None:
            same = {"$set": {"name": doc.content["name"]}}
            assert self.collection.update_one({"_id": doc.id}, same).modified_count == 0

    # The model's side of a step.

    def wrote(
        self,
        place: int,
        operation: str,
        content: Content | None,
        expected: int | None = None,
        *,
        step: steps.ByGateway | None = None,
        exact: bool = False,
        **more: Any,
    ) -> None:
        """Apply a write to the model.

        Args:
            exact: the version field is in the content already.
        """
        if step is not None:
            more = {**more, "author": step.author, "comment": step.comment}
        doc = self.documents[place]
        if content is None or step is None or exact:
            doc.write(operation, content, **more)
        else:
            doc.write_counted(operation, content, expected, **more)
        self.log.append([place])

    def plain_update(self, content: Content, change: str, counts: bool) -> tuple[Row, Content]:
        """Return an update with operators, and the content after it."""
        sets: Row = {"unique": self.count}
        content = {**content, "unique": self.count}
        update: Row = {"$set": sets}
        match change:
            case "name" | "stock":
                sets[change] = content[change] = (
                    f"plain {self.count}" if change == "name" else 1000 + self.count
                )
            case "sold":
                update["$unset"] = {"sold": ""}
                content.pop("sold", None)
            case "note" if isinstance(content.get("dimensions"), dict):
                sets["dimensions.note"] = "plain"
                content["dimensions"] = {**content["dimensions"], "note": "plain"}
            case "attributes" if isinstance(content.get("attributes"), dict):
                sets["attributes.a"] = self.count
                content["attributes"] = {**content["attributes"], "a": self.count}
            case "tags":
                update["$push"] = {"tags": "plain"}
                content["tags"] = [*content["tags"], "plain"]
        if counts and self.counted:
            update["$inc"] = {"version": 1}
            content["version"] = content.get("version", 0) + 1
        return update, content

    def taken(self, doc: PlainDocument, content: Content) -> bool:
        return any(
            other is not doc and other.content and other.content["sku"] == content["sku"]
            for other in self.documents
        )

    def duplicate(self, doc: PlainDocument, content: Content) -> Row | None:
        if self.taken(doc, content):
            return {"__typename": "AlreadyExists", "path": "sku"}
        return None

    def unfit(self, content: Content) -> Row | None:
        dimensions = content.get("dimensions")
        for name in ("width", "height"):
            if dimensions is not None and name not in dimensions:
                return {"__typename": "InvalidDocument", "path": f"dimensions.{name}"}
        return None

    def against(self, doc: PlainDocument, expected: int | None) -> Row | None:
        if doc.content is None:
            return {"__typename": "DocumentNotFound"}
        if expected is None or expected == doc.number:
            return None
        return self.conflict(doc, expected)

    def conflict(self, doc: PlainDocument, expected: int) -> Row:
        return {
            "__typename": "VersionConflict",
            "expectedVersion": expected,
            "actualVersion": doc.number,
            "current": None
            if doc.content is None
            else {"id": doc.id, "version": doc.number, **(api_content(doc.content) or {})},
        }

    # The gateway's side.

    async def mutated(
        self, verb: str, step: steps.ByGateway, refused: Row | None, **given: Any
    ) -> None:
        """Send a write; `refused` is the refusal that the model predicts."""
        doc = self.documents[step.doc]
        result = await self.sent(verb, step, given)
        if refused is not None:
            assert_refused(result, refused)
            return
        assert result["__typename"] == f"{self.entity}Written", result
        assert result["version"] == doc.number
        document = result[self.entity.lower()]
        if doc.content is None:
            assert document is None
        else:
            assert document == {
                "id": doc.id,
                "version": doc.number,
                **(api_content(doc.content) or {}),
            }
        self.marks.append((result["resumeToken"], len(self.log)))

    async def sent(self, verb: str, step: steps.ByGateway, given: Row) -> Row:
        """Return the result; it is the same for a mutation that is sent again."""
        key = uuid4().hex if step.twice else None
        given = {n: each for n, each in given.items() if each is not None}
        given |= {"id": self.documents[step.doc].id, "comment": step.comment}
        name = f"{verb}{self.entity}"
        result: Row = await self.shop.mutate(name, author=step.author, key=key, **given)
        if step.twice:
            again = await self.shop.mutate(name, author=step.author, key=key, **given)
            assert without(again, "resumeToken") == without(result, "resumeToken")
        return result


def expectation(doc: PlainDocument, expect: steps.Expect) -> int | None:
    return {
        "any": None,
        "this": doc.number,
        "stale": max(0, doc.number - 1),
        "future": doc.number + 1,
    }[expect]


def assert_refused(result: Row, refused: Row) -> None:
    assert {name: result.get(name) for name in refused} | {
        "current": without(result["current"], "nodeId") if result.get("current") else None
    } == {"current": None, **refused}, result


def stored_patch(given: Row) -> Row:
    """A patch in stored names and values."""
    return {
        "added_at" if name == "addedAt" else name: stored_value(name, value)
        for name, value in given.items()
    }


def stored_content(given: Row, doc: PlainDocument) -> Content:
    """Return the content after a replacement: fields that are not in the model stay."""
    kept = {n: v for n, v in (doc.content or {}).items() if n in ("extra", "unique", "version")}
    return {**kept, **stored_patch(given)}


def stored_value(name: str, value: Any) -> Any:
    match name:
        case _ if value is None:
            return None
        case "price":
            return Decimal128(value)
        case "sold":
            return Int64(value)
        case "addedAt":
            return datetime.fromisoformat(value)
    return value


def added(value: Any, more: Any) -> Any:
    if value is None:
        return more
    if isinstance(more, Decimal128):
        return Decimal128(value.to_decimal() + more.to_decimal())
    return type(more)(value + more)
