"""Steps of a random run for hypothesis to draw: changes of a few documents by a client of the
gateway or by another program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from bson import Decimal128, Int64
from hypothesis import strategies as st

__all__ = [
    "DOCUMENTS",
    "Create",
    "Delete",
    "DriverDelete",
    "DriverInsert",
    "DriverReplace",
    "DriverUpdate",
    "Propose",
    "Publish",
    "Reject",
    "Replace",
    "Restore",
    "Step",
    "Touch",
    "Transaction",
    "Update",
    "runs",
]

DOCUMENTS = 2
Expect = Literal["any", "this", "stale", "future"]


@dataclass(frozen=True, kw_only=True)
class Step:
    doc: int


@dataclass(frozen=True, kw_only=True)
class ByGateway(Step):
    """A mutation; `twice`: sent again under its idempotency key."""

    author: str
    comment: str | None
    twice: bool


@dataclass(frozen=True, kw_only=True)
class Create(ByGateway):
    document: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Update(ByGateway):
    expect: Expect
    patch: dict[str, Any]
    increment: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Replace(ByGateway):
    expect: Expect
    document: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Delete(ByGateway):
    expect: Expect


@dataclass(frozen=True, kw_only=True)
class Restore(ByGateway):
    """A restored version; `back`: its distance from the last one."""

    expect: Expect
    back: int


@dataclass(frozen=True, kw_only=True)
class Propose(ByGateway):
    """A draft; `on_version`, `on_draft`: the distance of its base from the last one, or None."""

    patch: dict[str, Any]
    on_version: int | None
    on_draft: int | None


@dataclass(frozen=True, kw_only=True)
class Publish(ByGateway):
    back: int


@dataclass(frozen=True, kw_only=True)
class Reject(ByGateway):
    back: int


@dataclass(frozen=True, kw_only=True)
class DriverUpdate(Step):
    """An update by another program; `says`: whether it stores its attribution."""

    counts: bool
    says: bool
    change: str


@dataclass(frozen=True, kw_only=True)
class DriverReplace(Step):
    counts: bool
    document: dict[str, Any]
    backwards: bool


@dataclass(frozen=True, kw_only=True)
class DriverDelete(Step):
    pass


@dataclass(frozen=True, kw_only=True)
class DriverInsert(Step):
    counts: bool
    document: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Transaction(Step):
    """A transaction that changes this document, the other one, and this one again."""

    counts: bool


@dataclass(frozen=True, kw_only=True)
class Touch(Step):
    """An update that changes nothing."""


_INTS = st.integers(-9, 9)
_FLOATS = st.sampled_from([0.5, 1.0, 2.5, 30.0])
_TEXTS = st.sampled_from(["", "a", "Lamp", "ß.$x"])
_PRICES = st.sampled_from(["1", "2.50", "0.05", "-3.125"])
# Names that MongoDB could take for paths and operators.
_NAMES = st.sampled_from(["a", "b", "b.c", "$d", "", "0"])
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _INTS | _FLOATS | _TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_OBJECTS = st.dictionaries(_NAMES, _JSON, max_size=3)
_SKUS = st.sampled_from(["s0", "s1", "s2"])
_TAGS = st.lists(_TEXTS, max_size=2)
_DATES = st.sampled_from(["2024-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999Z"])
_WHOLE_DIMENSIONS = st.fixed_dictionaries(
    {"width": _FLOATS, "height": _FLOATS}, optional={"note": _TEXTS}
)
_DOCUMENTS = st.fixed_dictionaries(
    {"sku": _SKUS, "name": _TEXTS, "price": _PRICES, "stock": _INTS, "tags": _TAGS},
    optional={
        "sold": _INTS,
        "dimensions": _WHOLE_DIMENSIONS,
        "attributes": _OBJECTS | _INTS,
        "addedAt": _DATES,
    },
)
_PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "name": _TEXTS,
        "price": _PRICES,
        "stock": _INTS,
        "sku": _SKUS,
        "sold": st.none() | _INTS,
        "tags": _TAGS,
        "dimensions": st.none()
        | _WHOLE_DIMENSIONS
        | st.fixed_dictionaries(
            {}, optional={"width": _FLOATS, "height": _FLOATS, "note": st.none() | _TEXTS}
        ),
        "attributes": st.none() | _OBJECTS | _OBJECTS | _INTS | st.lists(_INTS, max_size=2),
        "addedAt": st.none() | _DATES,
    },
)
_INCREMENTS = st.fixed_dictionaries(
    {}, optional={"stock": _INTS, "sold": _INTS, "price": st.sampled_from(["0.25", "-1.50"])}
)
_STORED = st.fixed_dictionaries(
    {
        "name": _TEXTS,
        "price": _PRICES.map(Decimal128),
        "stock": _INTS,
        "tags": _TAGS,
        "extra": st.sampled_from([1, 1.0, True, Int64(1), {"y": 1, "x": None}, [None]]),
    },
    optional={
        "sold": _INTS.map(Int64),
        "dimensions": st.fixed_dictionaries({"height": _FLOATS, "width": _FLOATS}),
        "attributes": _OBJECTS,
    },
)
_CHANGES = st.sampled_from(["", "name", "stock", "sold", "note", "attributes", "tags"])
_EXPECT = st.sampled_from(["any", "any", "this", "this", "stale", "future"])
_BACK = st.integers(0, 3)
_WHICH = {"doc": st.integers(0, DOCUMENTS - 1)}
_BY_GATEWAY = {
    **_WHICH,
    "author": st.sampled_from(["ann", "bob"]),
    "comment": st.none() | st.just("why"),
    "twice": st.sampled_from([False, False, False, True]),
}

_PATCHED = {**_BY_GATEWAY, "patch": _PATCHES}
_CREATE = st.builds(Create, **_BY_GATEWAY, document=_DOCUMENTS)
_UPDATE = st.builds(Update, **_PATCHED, expect=_EXPECT, increment=_INCREMENTS)
_REPLACE = st.builds(Replace, **_BY_GATEWAY, expect=_EXPECT, document=_DOCUMENTS)
_RESTORE = st.builds(Restore, **_BY_GATEWAY, expect=_EXPECT, back=_BACK)
_PROPOSE = st.builds(Propose, **_PATCHED, on_version=st.none() | _BACK, on_draft=st.none() | _BACK)
_PUBLISH = st.builds(Publish, **_BY_GATEWAY, back=_BACK)
_DRIVER_UPDATE = st.builds(
    DriverUpdate, **_WHICH, counts=st.booleans(), says=st.booleans(), change=_CHANGES
)
_DRIVER_REPLACE = st.builds(
    DriverReplace, **_WHICH, counts=st.booleans(), document=_STORED, backwards=st.booleans()
)
_STEPS: st.SearchStrategy[Step] = st.one_of(
    _CREATE,
    _UPDATE,
    _REPLACE,
    st.builds(Delete, **_BY_GATEWAY, expect=_EXPECT),
    _RESTORE,
    _PROPOSE,
    _PUBLISH,
    st.builds(Reject, **_BY_GATEWAY, back=_BACK),
    _DRIVER_UPDATE,
    _DRIVER_REPLACE,
    st.builds(DriverDelete, **_WHICH),
    st.builds(DriverInsert, **_WHICH, counts=st.booleans(), document=_STORED),
    st.builds(Transaction, **_WHICH, counts=st.booleans()),
    st.builds(Touch, **_WHICH),
)


def _phrase(*parts: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    """Draw steps that have a meaning only together, all on one document."""
    return st.tuples(_WHICH["doc"], *parts).map(
        lambda drawn: [replace(step, doc=drawn[0]) for step in drawn[1:]]
    )


_STALE = st.builds(Update, **_PATCHED, expect=st.just("stale"), increment=_INCREMENTS)
_NEXT = st.builds(Propose, **_PATCHED, on_version=st.none(), on_draft=st.just(0))
_LAST = st.builds(Publish, **_BY_GATEWAY, back=st.integers(0, 1))
_PHRASES = [
    *[_STEPS.map(lambda step: [step])] * 3,
    _phrase(_PROPOSE, _NEXT, _LAST, _PUBLISH),
    _phrase(_PROPOSE, _UPDATE | _DRIVER_UPDATE, _LAST),
    _phrase(_PROPOSE, _LAST, _NEXT, _UPDATE | _DRIVER_UPDATE, _LAST),
    _phrase(_DRIVER_UPDATE | _DRIVER_REPLACE, _RESTORE, _UPDATE),
    # The gateway's last write is overwritten, and only the content shows it.
    _phrase(_UPDATE, _DRIVER_UPDATE, _STALE),
]


def runs() -> st.SearchStrategy[list[Step]]:
    """Draw steps over documents that all exist in the beginning."""
    # `one_of` would draw each kind of step as often as a phrase.
    phrase = st.sampled_from(range(len(_PHRASES))).flatmap(_PHRASES.__getitem__)
    phrases = st.lists(phrase, min_size=6, max_size=12)
    return phrases.map(lambda drawn: [step for each in drawn for step in each])
