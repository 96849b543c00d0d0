"""Profiles of the collections of a database, from samples of their documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from revstream.model.compiler.validation.collections import OWN_SUFFIXES
from revstream.model.inference.draft_builder import CollectionFacts, has_fields
from revstream.model.inference.json_schema import add_json_schema
from revstream.model.inference.profile import ObjectProfile
from revstream.model.inference.relation import Candidate, Relation, candidates
from revstream.model.inference.union_type import document_discriminators
from revstream.streams.core.errors import Unsuitable
from revstream.streams.maintenance.sampling.document_profile import add_document
from revstream.streams.maintenance.sampling.misfit_filter import misfit_filter
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import find_unsupported_collections

__all__ = ["CollectionSamples", "sample_database"]

Report = Callable[[str, int, int], None]

_PAGE = 500
# Misfits that are read at once; each round widens at least one type.
_RARE = 50
_MOST_ROUNDS = 200
# Ids that are looked up of each candidate, and the share that has to exist.
_LOOKED_UP = 200
_LEAST_FOUND = 0.9
# Of a field whose name does not say so.
_LEAST_UNNAMED = 5


@dataclass(slots=True, kw_only=True)
class CollectionSamples:
    """Result of sampling.

    Attributes:
        collections: Facts by collection.
        left_out: Reasons by collection.
    """

    collections: dict[str, CollectionFacts] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


async def sample_database(
    mongo: Mongo, *, size: int | None, only: list[str], report: Report
) -> CollectionSamples:
    """Sample all collections, or some; then look for the documents that do not fit.

    Args:
        size: Documents of each collection; None for all.
        only: Names of collections; empty for all.

    Raises:
        GatewayError: A collection cannot be read.
    """
    found = CollectionSamples()
    names = await _collections(mongo, only, found)
    profiles: dict[str, ObjectProfile] = {}
    for name in names:
        total = await mongo.estimated_count(name)
        profile = ObjectProfile(discriminators=document_discriminators(names))
        await _sample(mongo, name, profile, size, total, report)
        schema = await _json_schema(mongo, name) if profile.count else {}
        add_json_schema(profile, schema)
        if not has_fields(profile):
            found.left_out[name] = "its documents have no field but _id" if total else "it is empty"
            continue
        profiles[name] = profile
        if size is not None and profile.count < total:
            await _widen(mongo, name, profile, schema, report)
    for name, profile in profiles.items():
        indexes = await _indexes(mongo, name)
        found.collections[name] = CollectionFacts(
            profile=profile,
            unique=_alone(indexes, None, unique=True),
            points=_alone(indexes, "2dsphere", unique=False),
            **_text_index(indexes),
            comment=f"Documents read: {profile.count:,}.",
        )
    found.relations = await _relations(mongo, profiles, report)
    report("", 0, 0)
    return found


async def _collections(mongo: Mongo, only: list[str], found: CollectionSamples) -> list[str]:
    reply = await mongo.command({"listCollections": 1, "nameOnly": True})
    names = sorted(each["name"] for each in reply["cursor"]["firstBatch"])
    names = [
        each
        for each in names
        if not each.startswith(("revstream.", "system.")) and not _is_own(each, names)
    ]
    if only:
        missing = sorted({*only} - {*names})
        if missing:
            raise Unsuitable(
                f"--collection {', '.join(missing)}: not in the database, which has "
                f"{', '.join(names) or 'no collection'}; correct it"
            )
        names = [each for each in names if each in only]
    if names:
        found.left_out |= await find_unsupported_collections(mongo, names)
    return [each for each in names if each not in found.left_out]


def _is_own(name: str, names: list[str]) -> bool:
    """Return whether revstream keeps it beside another collection."""
    return any(name.endswith(each) and name.removesuffix(each) in names for each in OWN_SUFFIXES)


async def _sample(
    mongo: Mongo,
    name: str,
    profile: ObjectProfile,
    size: int | None,
    total: int,
    report: Report,
) -> None:
    wanted = total if size is None else min(size, total)
    if size is None or size >= total:
        pages = mongo.pages(name, {}, sort=[], size=_PAGE)
    else:
        stages: list[Mapping[str, Any]] = [{"$sample": {"size": size}}]
        pages = mongo.aggregate_pages(name, stages, size=_PAGE)
    async with aclosing(pages):
        async for page in pages:
            for document in page:
                add_document(profile, document)
            report(f"read {name}", profile.count, wanted)


async def _widen(
    mongo: Mongo, name: str, profile: ObjectProfile, schema: Mapping[str, Any], report: Report
) -> None:
    """Look for documents that do not fit, and add them, until there are none.

    Raises:
        Unsuitable: There are always more.
    """
    for number in range(_MOST_ROUNDS):
        report(f"check all of {name}", number, 0)
        query = misfit_filter(profile)
        if query is None:
            return
        pages = mongo.pages(name, query, sort=[], size=_RARE)
        async with aclosing(pages):
            page: list[Any] = await anext(pages, [])
        if not page:
            return
        for document in page:
            add_document(profile, document, rare=True)
        # For types that were not in the sample.
        add_json_schema(profile, schema)
    raise Unsuitable(
        f"collection {name!r}: documents that do not fit after {_MOST_ROUNDS} rounds, expected "
        "none; read all of them with --all"
    )


async def _json_schema(mongo: Mongo, name: str) -> Mapping[str, Any]:
    reply = await mongo.command({"listCollections": 1, "filter": {"name": name}})
    options = reply["cursor"]["firstBatch"][0]["options"]
    schema = options.get("validator", {}).get("$jsonSchema", {})
    return schema if isinstance(schema, Mapping) else {}


async def _indexes(mongo: Mongo, name: str) -> list[Mapping[str, Any]]:
    indexes = await mongo.indexes(name)
    return [each for each in indexes if "partialFilterExpression" not in each]


def _text_index(indexes: list[Mapping[str, Any]]) -> dict[str, Any]:
    for each in indexes:
        if "textIndexVersion" in each and len(each["key"]) == 2:
            weights = {name: int(weight) for name, weight in each["weights"].items()}
            return {"weights": weights, "language": each["default_language"]}
    return {}


def _alone(indexes: list[Mapping[str, Any]], kind: object, *, unique: bool) -> frozenset[str]:
    """Return the paths that an index of a kind covers alone."""
    return frozenset(
        path
        for each in indexes
        if len(each["key"]) == 1 and (each.get("unique") or not unique)
        for path, of in each["key"].items()
        if of == kind or kind is None
    )


async def _relations(
    mongo: Mongo, profiles: Mapping[str, ObjectProfile], report: Report
) -> list[Relation]:
    """Return the candidates whose ids exist; the best of each field."""
    found: dict[tuple[str, tuple[str, ...]], Relation] = {}
    possible = candidates(profiles)
    for number, each in enumerate(possible):
        report("relations", number, len(possible))
        at = (each.collection, each.path)
        share = await _share_that_exists(mongo, each) if at not in found else None
        if share is not None and share >= _LEAST_FOUND:
            found[at] = Relation(candidate=each, found=share)
    return [*found.values()]


async def _share_that_exists(mongo: Mongo, candidate: Candidate) -> float | None:
    path = ".".join(candidate.path)
    stages: list[Mapping[str, Any]] = [
        {"$match": {path: {"$exists": True, "$ne": None}}},
        {"$limit": _LOOKED_UP},
        *({"$unwind": f"${'.'.join(candidate.path[: n + 1])}"} for n in range(len(candidate.path))),
        {"$group": {"_id": f"${path}"}},
        {"$limit": _LOOKED_UP},
    ]
    ids = [each["_id"] for each in await mongo.aggregate(candidate.collection, stages)]
    if not ids or (not candidate.named and len(ids) < _LEAST_UNNAMED):
        return None
    query = {"_id": {"$in": ids}}
    return await mongo.count(candidate.target, query) / len(ids)
