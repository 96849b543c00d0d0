"""Mutation services in memory: they record calls and return the answers that a test sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bson import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.drafts.comments import Comment, Subject
from revstream.resolvers.drafts.draft import Draft
from revstream.resolvers.mutations.result import Written
from revstream.resolvers.pagination.page import Page, PageRequest
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens
from revstream.streams.live.saved_cursors import SavedCursor
from tests.support.streams import raw

__all__ = ["MemoryEditing", "comment", "draft", "written"]

_THEN = datetime(2024, 5, 1, 12, tzinfo=UTC)


class MemoryEditing:
    """Replacement in memory for `gql.engine.request.mutation_services.MutationServices`.

    Attributes:
        asked: name, positional and named arguments of each call.
        answer: the result of each call; raised, if it is an exception.
        numbers: how often the number of a version was read.
        proposed: drafts by document.
        said: comments by subject.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answer: Any = None
        self.numbers = 0
        self.proposed: dict[Any, list[Draft]] = {}
        self.said: dict[Subject, list[Comment]] = {}
        self.writes = _Writes(self)
        self.restoring = self.fences = self.publishing = _Noted(self)
        self.cursors = _Cursors(self)
        self.drafts = _Drafts(self)
        self.comments = _Comments(self)


class _Noted:
    """A service that records any call."""

    def __init__(self, editing: MemoryEditing) -> None:
        self._editing = editing

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self._editing.asked.append((name, args, kwargs))
            if isinstance(self._editing.answer, Exception):
                raise self._editing.answer
            return self._editing.answer

        return call


class _Cursors(_Noted):
    async def list_for(self, owner: str) -> list[SavedCursor]:
        return [SavedCursor("mine", resume_tokens.token_from_time(Timestamp(1, 1)), _THEN)]


class _Writes(_Noted):
    def __init__(self, editing: MemoryEditing) -> None:
        super().__init__(editing)
        self.made = self

    async def number(self, entity: Entity, made: Written) -> int:
        self._editing.numbers += 1
        assert made.number is not None
        return made.number


class _Drafts(_Noted):
    async def page(
        self,
        entities: Sequence[Entity],
        query: Mapping[str, Any],
        request: PageRequest,
        *,
        whole: bool,
        total: bool,
    ) -> Page[tuple[Entity, Draft]]:
        """Return a page of one document's drafts, without a filter; the page of a type is empty."""
        if "$and" not in query:
            return _page([])
        of_document, filter_ = query["$and"]
        assert not filter_
        [entity] = entities
        drafts = self._editing.proposed.get(identity(of_document["doc"]["$eq"]), [])
        return _page([(entity, each) for each in drafts])

    async def numbered(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]]
    ) -> list[Draft | None]:
        of_each = [self._editing.proposed.get(identity(id_), []) for id_, _ in wanted]
        return [
            next((d for d in drafts if d.number == number), None)
            for drafts, (_, number) in zip(of_each, wanted, strict=True)
        ]


class _Comments(_Noted):
    async def page(self, *_args: Any, **_kwargs: Any) -> Page[tuple[Entity, Comment]]:
        return _page([])

    async def on(
        self, entity: Entity, subjects: Sequence[Subject], request: PageRequest, *, total: bool
    ) -> list[Page[tuple[Entity, Comment]]]:
        said = [self._editing.said.get(each, []) for each in subjects]
        return [_page([(entity, each) for each in comments]) for comments in said]


def _page(items: list[tuple[Entity, Any]]) -> Page[tuple[Entity, Any]]:
    return Page(items=items, cursors=[str(n) for n in range(len(items))], total=len(items))


def written(document: Mapping[str, Any] | None, *, key: Any = None, number: int = 2) -> Written:
    """Return the result of a write one second after the start."""
    return Written(
        key=key if document is None else document["_id"],
        at=Timestamp(int(_THEN.timestamp()) + 1, 1),
        change="c1",
        document=raw(document),
        number=number,
    )


def draft(
    number: int = 1, *, document: Any = "p", base: Any = None, full: Any = None, **more: Any
) -> Draft:
    """Return a draft that ann has proposed on version 2."""
    facts: dict[str, Any] = {
        "status": "PROPOSED",
        "based_on": 2,
        "based_on_draft": None,
        "by": "ann",
        "owner": "ann",
        "why": "a reason",
        "at": _THEN,
        "moment": Timestamp(int(_THEN.timestamp()), 1),
        "published_as": None,
        "decided_by": None,
        "decided_why": None,
        "decided_at": None,
    }
    base = {"_id": document} if base is None else base
    full = base if full is None else full
    return Draft(document=document, number=number, base=base, full=full, **facts | more)


def comment(text: str, **more: Any) -> Comment:
    """Return a comment by bob."""
    facts = {"id": "c1", "document": "p", "version": None, "draft": None, "reply_to": None}
    return Comment(by="bob", at=_THEN, text=text, **facts | more)
