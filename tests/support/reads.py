"""In-memory Current, History, Moments, Changes and Status, and a context built from them.

They record each read. They project as MongoDB does, so that a field that was not requested is
missing here, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import Timestamp

from revstream.gql.engine.request.context import RequestContext
from revstream.gql.engine.request.services import Services
from revstream.model.definition import Entity
from revstream.resolvers.access.permissions import OPEN
from revstream.resolvers.admin.stream_status import StreamStatus
from revstream.resolvers.filters.parser import Condition
from revstream.resolvers.filters.predicate import compile_predicate
from revstream.resolvers.history.time_point import TimePoint
from revstream.resolvers.history.version_filter import VersionFilter
from revstream.resolvers.pagination.page import Page
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.projection import ENDED
from revstream.resolvers.subscriptions.event_enrichment import Change
from revstream.resolvers.subscriptions.start import ChangeRequest
from revstream.streams.archive.coverage import Gap, TimeMark
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version
from tests.support.bson_order import sort_key
from tests.support.edits import MemoryEditing

Matches = Callable[[Version], bool]

DEPLOYMENT = "tests"
BEGINNING = datetime(2024, 5, 1, 12, tzinfo=UTC)


def at(second: int) -> Timestamp:
    """Return the cluster time `second` seconds after the start."""
    return Timestamp(int(BEGINNING.timestamp()) + second, 1)


@dataclass
class Memory:
    """All documents and versions; `calls` are the reads: name, entity, count, fields.

    `knowing`: version numbers are known without a read.
    """

    documents: dict[str, list[Document]] = field(default_factory=dict)
    versions: dict[str, list[Version]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    requests: list[ChangeRequest] = field(default_factory=list)
    calls: list[tuple[str, str, int, frozenset[str] | None]] = field(default_factory=list)
    failure: Exception | None = None
    knowing: bool = False
    editing: MemoryEditing = field(default_factory=MemoryEditing)

    def write(self, collection: str, document: Document | None, *, id_: Any = None) -> Version:
        """Insert or change a document, or delete it (None), one second after the last write."""
        versions = self.versions.setdefault(collection, [])
        key = document["_id"] if document is not None else id_
        second = sum(map(len, self.versions.values()))
        earlier = [each for each in versions if identity(each.document) == identity(key)]
        last = earlier[-1] if earlier else None
        wall = BEGINNING + timedelta(seconds=second)
        version = Version(
            token=f"{resume_tokens.time_prefix(at(second))}{second:04X}",
            document=key,
            number=1 if last is None else last.number + 1,
            operation="DELETE" if document is None else "INSERT" if last is None else "UPDATE",
            at=at(second),
            wall=wall,
            previous=None if last is None else last.token,
            by="ann",
            why="a reason",
            changed=_changed(None if last is None else last.full, document),
            full=document,
        )
        versions.append(version)
        stored = self.documents.setdefault(collection, [])
        stored[:] = [each for each in stored if identity(each["_id"]) != identity(key)]
        if document is not None:
            stored.append(document)
        return version

    def following(self, collection: str, version: Version) -> Version | None:
        """Return the version that follows this one."""
        all_ = self.versions.get(collection, ())
        return next((each for each in all_ if each.previous == version.token), None)

    def context(self) -> RequestContext:
        """Return a context whose services read from this memory."""
        return RequestContext(
            scope=OPEN,
            services=Services(
                current=MemoryCurrent(self),  # type: ignore[arg-type]
                history=MemoryHistory(self),  # type: ignore[arg-type]
                moments=MemoryMoments(self),  # type: ignore[arg-type]
                live=MemoryChanges(self),  # type: ignore[arg-type]
                proposals=None,  # type: ignore[arg-type]
                status=MemoryStatus(),  # type: ignore[arg-type]
                editing=self.editing,  # type: ignore[arg-type]
            ),
            deployment=DEPLOYMENT,
        )

    def record(self, version: Version) -> Document:
        """Return the record as an archive returns it."""
        told = {
            "_id": version.token,
            "doc": version.document,
            "v": version.number,
            "op": version.operation,
            "at": version.at,
            "wall": version.wall,
            "prev": version.previous,
            "by": version.by,
            "why": version.why,
            "restoredFrom": version.restored_from,
            "draft": version.draft,
            "changed": list(version.changed),
            "gap": version.gap,
            "full": version.full,
        }
        found: Document = _naive(told)
        return found

    def called(self, name: str, entity: Entity, count: int, fields: frozenset[str] | None) -> None:
        self.calls.append((name, entity.name, count, fields))
        if self.failure is not None:
            raise self.failure


class MemoryCurrent:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def by_ids(
        self,
        entity: Entity,
        ids: Sequence[Any],
        fields: frozenset[str],
        *,
        for_output: bool = False,
    ) -> list[Document | None]:
        self._memory.called("by_ids", entity, len(ids), fields)
        found = {
            identity(each["_id"]): projected(each, fields)
            for each in self._memory.documents.get(entity.collection, ())
        }
        return [found.get(identity(each)) for each in ids]

    async def other_id(self, entity: Entity, key: Any, kinds: Sequence[str]) -> Any:
        return None

    async def page(self, entity: Entity, query: PageQuery[Condition]) -> Page[Document]:
        self._memory.called("page", entity, 1, query.fields)
        return _page(self._chosen(entity, query), query)

    def prepare_read(self, entity: Entity, query: PageQuery[Condition]) -> Any:
        # A cached schema outlives this memory: bind nothing of it.
        return entity, query

    async def read(self, page_read: Any) -> Page[Document]:
        return await self.page(*page_read)

    async def pages_by_parent(
        self,
        entity: Entity,
        stored_field: str,
        parents: Sequence[Any],
        query: PageQuery[Condition],
    ) -> list[Page[Document]]:
        self._memory.called("pages_by_parent", entity, len(parents), query.fields)
        chosen = self._chosen(entity, query)
        return [_page([d for d in chosen if d.get(stored_field) == p], query) for p in parents]

    def _chosen(self, entity: Entity, query: PageQuery[Condition]) -> list[Document]:
        documents = self._memory.documents.get(entity.collection, [])
        return _chosen(entity, documents, query.where, query.order or ())

    def read_positions(self) -> dict[str, str]:
        return defaultdict(str)

    def known_numbers(
        self, entity: Entity, documents: Sequence[Document], seen: str
    ) -> list[int | None]:
        return self._numbers(entity, documents) if self._memory.knowing else [None] * len(documents)

    async def numbers(self, entity: Entity, documents: Sequence[Document], seen: str) -> list[int]:
        self._memory.called("numbers", entity, len(documents), None)
        return self._numbers(entity, documents)

    def _numbers(self, entity: Entity, documents: Sequence[Document]) -> list[Any]:
        versions = self._memory.versions.get(entity.collection, ())
        last = {identity(each.document): each.number for each in versions}
        return [last.get(identity(each["_id"]), 0) for each in documents]


class MemoryHistory:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def by_number(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], fields: frozenset[str] | None
    ) -> list[Version | None]:
        self._memory.called("by_number", entity, len(wanted), fields)
        return [self._one(entity, fields, _numbered(*w)) for w in wanted]

    async def as_of(
        self, entity: Entity, wanted: Sequence[tuple[Any, Timestamp]], fields: frozenset[str] | None
    ) -> list[Version | None]:
        self._memory.called("as_of", entity, len(wanted), fields)
        return [
            self._one(
                entity,
                fields,
                lambda v, i=id_, m=moment: bool(v.document == i) and self._stood(entity, v, m),
            )
            for id_, moment in wanted
        ]

    async def before(
        self, entity: Entity, wanted: Sequence[str], fields: frozenset[str] | None
    ) -> list[Version | None]:
        self._memory.called("before", entity, len(wanted), fields)
        return [self._one(entity, fields, _with_token(w)) for w in wanted]

    async def newest(
        self, entity: Entity, ids: Sequence[Any], fields: frozenset[str] | None
    ) -> list[Version | None]:
        self._memory.called("newest", entity, len(ids), fields)
        return [self._one(entity, fields, _id_matches(i)) for i in ids]

    async def ends(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]]
    ) -> list[datetime | None]:
        self._memory.called("ends", entity, len(wanted), None)
        found = [self._one(entity, None, _numbered(*each)) for each in wanted]
        return [None if each is None else self._end(entity, each) for each in found]

    def _end(self, entity: Entity, version: Version) -> datetime | None:
        following = self._memory.following(entity.collection, version)
        return None if following is None else following.wall

    def _stood(self, entity: Entity, version: Version, moment: Timestamp) -> bool:
        following = self._memory.following(entity.collection, version)
        replaced = following is not None and following.at <= moment
        return version.operation != "DELETE" and version.at <= moment and not replaced

    async def changes_before(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], *, limit: int
    ) -> list[list[Document]]:
        self._memory.called("changes_before", entity, len(wanted), None)
        return [
            [
                {"v": each.number, "op": each.operation, "changed": list(each.changed)}
                for each in reversed(list(self._all(entity)))
                if each.document == id_ and each.number < number
            ]
            for id_, number in wanted
        ]

    async def pages_of(
        self, entity: Entity, ids: Sequence[Any], query: PageQuery[VersionFilter]
    ) -> list[Page[Any]]:
        self._memory.called("pages_of", entity, len(ids), query.fields)
        return [self._page(entity, _id_matches(i), query) for i in ids]

    async def trail(self, entity: Entity, query: PageQuery[VersionFilter]) -> Page[Any]:
        self._memory.called("trail", entity, 1, query.fields)
        return self._page(entity, lambda _: True, query)

    async def collection_as_of(
        self, entity: Entity, moment: TimePoint, query: PageQuery[Condition]
    ) -> Page[Any]:
        self._memory.called("collection_as_of", entity, 1, query.fields)
        matches = (lambda _: True) if query.where is None else compile_predicate(query.where)
        return self._page(
            entity,
            lambda v: self._stood(entity, v, moment.at) and v.full is not None and matches(v.full),
            query,
        )

    def _page(self, entity: Entity, matches: Matches, query: PageQuery[Any]) -> Page[Any]:
        found = [each for each in self._all(entity) if matches(each)][::-1]
        count = len(found[: query.page.first])
        items = [_version(each, query.fields) for each in found[: count + 1]]
        page_found: Page[Version] = Page(
            items=items[:count],
            cursors=[f"c{n}" for n in range(count)],
            has_next=len(found) > count,
            total=len(found) if query.total else None,
            beyond=items[count] if len(items) > count else None,
            ends={each.token: self._end(entity, each) for each in items[:count]}
            if ENDED in query.facts
            else None,
        )
        return page_found.transform(self._memory.record) if query.for_output else page_found

    def _one(
        self, entity: Entity, fields: frozenset[str] | None, matches: Matches
    ) -> Version | None:
        found = [each for each in self._all(entity) if matches(each)]
        return _version(found[-1], fields) if found else None

    def _all(self, entity: Entity) -> Iterable[Version]:
        return self._memory.versions.get(entity.collection, ())


class MemoryMoments:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def resolve(
        self, entity: Entity, *, time: datetime | None = None, token: str | None = None
    ) -> TimePoint:
        self._memory.called("moment", entity, 1, None)
        if token is not None:
            return TimePoint(resume_tokens.cluster_time(resume_tokens.decode(token, DEPLOYMENT)))
        assert time is not None
        return TimePoint(Timestamp(int(time.timestamp()), 2**32 - 1))

    async def reached(self, entity: Entity, moment: TimePoint) -> None:
        return None

    async def now(self) -> TimePoint:
        return TimePoint(at(sum(map(len, self._memory.versions.values()))))


class MemoryChanges:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def changes(
        self,
        entity: Entity,
        request: ChangeRequest,
        *,
        company: object = None,
        shutdown: object = None,
        begun: object = None,
    ) -> AsyncGenerator[Change]:
        self._memory.requests.append(request)
        for each in self._memory.changes:
            yield each
        if self._memory.failure is not None:
            raise self._memory.failure


class MemoryStatus:
    async def gaps(self, collection: str) -> list[Gap]:
        start, end = (TimeMark(at(n), BEGINNING) for n in (0, 1))
        return [Gap(start, end, f"the test lost {collection}")]

    async def statuses(self) -> list[StreamStatus]:
        return [
            StreamStatus(
                name="recorder:products",
                collection="products",
                state="recording",
                owner="me",
                fence=3,
                resume_token=resume_tokens.token_from_time(at(0)),
                at=BEGINNING,
                lag_s=0.5,
            )
        ]


def projected(document: Document, fields: Iterable[str]) -> Document:
    """Return MongoDB's result of an inclusion of these paths and the `_id`."""
    wanted: dict[str, Any] = {"_id": {}}
    for path in sorted(fields):
        below = wanted
        *above, last = path.split(".")
        for name in above:
            below = below.setdefault(name, {})
            if not below:
                break
        else:
            below[last] = {}
    result: Document = _included(document, wanted)
    return result


def _included(value: Any, wanted: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_included(each, wanted) for each in value if isinstance(each, dict | list)]
    shown = {}
    for name, each in value.items():
        if name not in wanted:
            continue
        if not wanted[name]:
            shown[name] = each
        elif isinstance(each, dict | list):
            shown[name] = _included(each, wanted[name])
    return shown


def _id_matches(id_: Any) -> Matches:
    return lambda version: bool(version.document == id_)


def _numbered(id_: Any, number: int) -> Matches:
    return lambda version: bool(version.document == id_) and version.number == number


def _with_token(token: str) -> Matches:
    return lambda version: version.token == token


def _changed(before: Document | None, after: Document | None) -> tuple[str, ...]:
    return tuple(
        name
        for name in {**(before or {}), **(after or {})}
        if name != "_id" and (before or {}).get(name) != (after or {}).get(name)
    )


def _version(version: Version, fields: frozenset[str] | None) -> Version:
    if fields is None or version.full is None:
        return replace(version, full=None)
    return replace(version, full=projected(version.full, fields))


def _chosen(
    entity: Entity,
    documents: Iterable[Document],
    where: Condition | None,
    order: Sequence[tuple[str, str]],
) -> list[Document]:
    matches = (lambda _: True) if where is None else compile_predicate(where)
    chosen = [each for each in documents if matches(each)]
    for name, direction in reversed(order):
        field = entity.field(name)
        path = name if field is None else field.stored
        chosen.sort(key=lambda each: _place(_value_at(each, path)), reverse=direction == "DESC")
    return chosen


def _value_at(document: Document | None, path: str) -> Any:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _place(value: Any) -> Any:
    """Return a sort key in MongoDB's order; values that break the model have any position.

    MongoDB orders lists by one item; here they have any position.
    """
    return sort_key(repr(value) if isinstance(value, list) else value)


def _page(found: Sequence[Document], query: PageQuery[Condition]) -> Page[Document]:
    shown = found[: query.page.first]
    return Page(
        items=[projected(each, query.fields or ()) for each in shown],
        cursors=[f"c{n}" for n, _ in enumerate(shown)],
        has_next=len(found) > len(shown),
        total=len(found) if query.total else None,
        token=resume_tokens.token_from_time(at(0)) if query.token else None,
    )


def _naive(value: Any) -> Any:
    """Return the value with naive dates, as they are read for output."""
    match value:
        case datetime():
            return value.replace(tzinfo=None)
        case dict():
            return {name: _naive(each) for name, each in value.items()}
        case list():
            return [_naive(each) for each in value]
    return value
