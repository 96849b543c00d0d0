"""Plain model of the changes of a few documents, compared with the answers of the gateway."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.support import editing_steps as steps
from tests.support.editing import PRODUCT, Row, Shop, without
from tests.support.plain_model import PlainDocument, api_changes, api_content, canonical

Content = dict[str, Any]


class Story:
    """The predicted state of a few documents and their history.

    `log` is every version in stream order, in groups with the same cluster time; `marks` are resume
    tokens of writes, with the length of the log right after them.
    """

    def __init__(self, shop: Shop, entity: str) -> None:
        self.shop = shop
        self.entity = entity
        self.collection = shop.database[f"{entity.lower()}s"]
        prefix = uuid4().hex[:8]
        self.counted = entity == "Product"
        self.documents = [
            PlainDocument(f"{prefix}-{n}", self.counted) for n in range(steps.DOCUMENTS)
        ]
        self.log: list[list[int]] = []
        self.marks: list[tuple[str, int]] = []
        self.count = 0

    async def check(self) -> None:
        """Compare current documents, history, blame, diff and as-of reads with the model."""
        await self.shop.recorded()
        tokens: list[tuple[str, int]] = []
        versions: dict[int, list[Row]] = {}
        for place, doc in enumerate(self.documents):
            self.check_stored(doc)
            history = await self.shop.history(doc.id, self.entity)
            self.check_history(doc, history)
            versions[place] = history
            await self.check_present(doc)
        seen = dict.fromkeys(versions, 0)
        for position, group in enumerate(self.log, 1):
            for place in group:
                tokens.append((versions[place][seen[place]]["resumeToken"], position))
                seen[place] += 1
        for at in range(0, len(tokens + self.marks), 12):
            await self.check_as_of((tokens + self.marks)[at : at + 12])

    def check_stored(self, doc: PlainDocument) -> None:
        found = self.collection.find_one({"_id": doc.id})
        if found is None:
            assert doc.content is None
        else:
            stored = without(found, "_id", "_change")
            assert canonical(stored) == canonical(doc.content), (stored, doc.content)

    def check_history(self, doc: PlainDocument, history: list[Row]) -> None:
        assert [
            (
                each["version"],
                each["operation"],
                each["author"],
                each["comment"],
                each["restoredFrom"],
                each["fromDraft"],
                each["gap"],
                each["document"] and without(each["document"], "id"),
            )
            for each in history
        ] == [
            (
                each.number,
                each.operation,
                each.author,
                each.comment,
                each.restored_from,
                each.draft,
                False,
                api_content(each.content),
            )
            for each in doc.versions
        ]
        before: Content | None = None
        for each, version in zip(history, doc.versions, strict=True):
            expected = api_changes(before, version.content)
            assert diff_rows(each["diff"]) == expected
            if version.content is not None:
                assert sorted(each["changedFields"]) == [path for path, *_ in expected]
            before = version.content

    async def check_present(self, doc: PlainDocument) -> None:
        changes = "path kind before after"
        diffs = " ".join(
            f"d{n}: diff(from: {each.number}) {{ {changes} }}"
            for n, each in enumerate(doc.versions)
        )
        text = f"""
          query($id: ID!) {{ found: {self.entity.lower()}(id: $id) {{
            version {PRODUCT} blame {{ path version {{ version }} }} {diffs}
            drafts(first: 100) {{
              nodes {{ number status basedOn basedOnDraft publishedAs }}
            }}
          }} }}
        """
        found = (await self.shop.ask(text, id=doc.id))["found"]
        if doc.content is None:
            assert found is None
            return
        assert {name: found[name] for name in (api_content(doc.content) or ())} == api_content(
            doc.content
        )
        assert found["version"] == doc.number
        assert {b["path"]: b["version"]["version"] for b in found["blame"]} == doc.blame()
        for n, version in enumerate(doc.versions):
            assert diff_rows(found[f"d{n}"]) == api_changes(version.content, doc.content)
        assert list(reversed(found["drafts"]["nodes"])) == [
            {
                "number": each.number,
                "status": each.status,
                "basedOn": each.based_on,
                "basedOnDraft": each.based_on_draft,
                "publishedAs": each.published_as,
            }
            for each in doc.drafts
        ]

    async def check_as_of(self, moments: list[tuple[str, int]]) -> None:
        where = ", ".join(f'"{each.id}"' for each in self.documents)
        parts = [
            f'm{n}: {self.entity.lower()}sAsOf(asOf: {{token: "{token}"}}, '
            f"where: {{id: {{in: [{where}]}}}}, orderBy: [{{id: ASC}}]) "
            f"{{ nodes {{ version documentId document {{ {PRODUCT} }} }} }}"
            for n, (token, _) in enumerate(moments)
        ]
        found = await self.shop.ask("{ " + " ".join(parts) + " }")
        for n, (_, position) in enumerate(moments):
            expected = []
            for place, doc in enumerate(self.documents):
                count = sum(group.count(place) for group in self.log[:position])
                if count and doc.versions[count - 1].content is not None:
                    version = doc.versions[count - 1]
                    expected.append((doc.id, version.number, api_content(version.content)))
            assert [
                (each["documentId"], each["version"], without(each["document"], "id"))
                for each in found[f"m{n}"]["nodes"]
            ] == expected, moments[n]


def diff_rows(diff: list[Row]) -> list[tuple[Any, ...]]:
    rows = [(each["path"], each["kind"], each["before"], each["after"]) for each in diff]
    return sorted(rows, key=lambda row: row[0])
