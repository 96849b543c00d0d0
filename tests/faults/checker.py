"""Comparison of the archive and the delivered events with all writes.

Independent of revstream's code: the archive is read as plain documents, and streams are the events
that clients received. Every function returns findings as texts that are precise enough to search
for; an empty list means no error.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson.raw_bson import RawBSONDocument

from tests.faults.subscribers import Delivery
from tests.faults.truth import Place, Truth, Write

__all__ = ["Version", "check_archive", "check_present", "check_stream", "check_transactions"]

_ENOUGH = 6
"""The most findings of one kind and document; more would be consequences of these."""
_CHANGED = {"UPDATE", "REPLACE"}


@dataclass(frozen=True, slots=True)
class Version:
    """A record of the archive; `content` is the BSON of `full`."""

    token: str
    key: str
    number: int
    operation: str
    at: Any
    wall: Any
    prev: str | None
    by: str | None
    gap: bool
    content: bytes | None
    op: int | None
    n: int | None
    carried: Any

    @classmethod
    def from_record(cls, record: RawBSONDocument) -> Version:
        full = record["full"]
        return cls(
            token=record["_id"],
            key=record["doc"],
            number=record["v"],
            operation=record["op"],
            at=record["at"],
            wall=record["wall"],
            prev=record["prev"],
            by=record["by"],
            gap=bool(record.get("gap")),
            content=None if full is None else bytes(full.raw),
            op=None if full is None else full.get("op"),
            n=None if full is None else full.get("n"),
            carried=None if full is None else full.get("version"),
        )

    def __str__(self) -> str:
        return f"version {self.number} ({self.operation}, op {self.op}, at {self.token[:16]})"


def check_archive(
    collection: str, versions: Sequence[Version], truth: Truth, *, counted: bool
) -> list[str]:
    """Compare the archive of one collection, in token order, with the truth.

    Args:
        counted: whether the documents have a version field.
    """
    findings: list[str] = []
    by_key: dict[str, list[Version]] = defaultdict(list)
    last_token, last_at = "", None
    for each in versions:
        if each.token <= last_token:
            findings.append(f"{collection}: token {each.token} stands after {last_token}")
        if last_at is not None and each.at < last_at:
            findings.append(f"{collection}: {each} is earlier than the one before, {last_at}")
        if each.op in truth.never:
            findings.append(f"{collection}/{each.key}: {each} was never written, or rolled back")
        if each.gap:
            findings.append(f"{collection}/{each.key}: {each} says that something was lost")
        last_token, last_at = each.token, each.at
        by_key[each.key].append(each)
    expected = {place[1] for place in (*truth.chains, *truth.shared) if place[0] == collection}
    findings += [
        f"{collection}/{key}: archived, and never written: {by_key[key][0]}"
        for key in sorted(by_key.keys() - expected)
    ]
    for key in sorted(expected):
        place = (collection, key)
        history = by_key.get(key, [])
        if place in truth.shared:
            unknown = truth.shared_unknown.get(place, {})
            found = _check_shared(history, truth.shared[place], unknown)
        else:
            found = _check_own(history, truth.chains[place])
        # Missing and extra versions also show in the chain.
        found += _check_chain(history, counted=counted)
        findings += [f"{collection}/{key}: {each}" for each in found[:_ENOUGH]]
    return findings


def _check_chain(history: Sequence[Version], *, counted: bool) -> list[str]:
    """Check the numbers and `prev` of one document's versions."""
    findings = []
    before: Version | None = None
    for each in history:
        number = 1 if before is None else before.number + 1
        if counted and isinstance(each.carried, int) and each.carried > number:
            number = each.carried
        if each.number != number:
            findings.append(f"{each} should have number {number}")
        if each.prev != (before.token if before else None):
            findings.append(f"{each}: prev is {each.prev}, and {before} stands before")
        before = each
    return findings


def _check_own(history: Sequence[Version], chain: Sequence[Write]) -> list[str]:
    findings = []
    for place, (version, write) in enumerate(zip(history, chain, strict=False)):
        if (
            version.content != write.content
            or version.by != write.by
            or not _same_operation(version.operation, write.kind)
        ):
            findings.append(
                f"{place}: {version} by {version.by} stands where op {write.op} ({write.kind}) by "
                f"{write.by} belongs"
            )
            break
    if len(history) != len(chain):
        findings.append(f"{len(history)} versions, and {len(chain)} writes")
    if findings:
        findings += _differing(
            [(each.op, each.operation == "DELETE") for each in history],
            [(None if each.kind == "DELETE" else each.op, each.kind == "DELETE") for each in chain],
        )
    return findings


def _same_operation(archived: str, written: str) -> bool:
    # The server logs an update as a replacement, or the reverse, where it saves bytes.
    return archived == written or (archived in _CHANGED and written in _CHANGED)


def _check_shared(
    history: Sequence[Version], acknowledged: Mapping[int, Write], unknown: Mapping[int, Write]
) -> list[str]:
    """Check that each `n` occurs once and in order.

    Acknowledged writes must be there; any other version must be a write that was attempted.
    """
    findings = []
    for n, version in enumerate(history, 1):
        if version.n != n:
            findings.append(f"{version} has n={version.n} and stands where n={n} belongs")
            break
        write = acknowledged.get(n)
        if write is not None:
            if version.content != write.content:
                findings.append(f"{version} has not the content of op {write.op}")
        elif version.op not in unknown:
            findings.append(f"{version} was written by nobody")
    last = max(acknowledged)
    if len(history) < last:
        findings.append(f"{len(history)} versions, and {last} writes")
    repeated = [op for op, count in Counter(each.op for each in history).items() if count > 1]
    if repeated:
        findings.append(f"twice: ops {repeated[:_ENOUGH]}")
    return findings


def _differing(found: Sequence[Any], expected: Sequence[Any]) -> list[str]:
    missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    findings = []
    if missing:
        findings.append(f"missing: {list(missing.elements())[:_ENOUGH]}")
    if extra:
        findings.append(f"too many: {list(extra.elements())[:_ENOUGH]}")
    if not missing and not extra:
        findings.append("the same in another order, or with another content")
    return findings


def check_transactions(versions: Iterable[tuple[str, Version]], truth: Truth) -> list[str]:
    """Check that transactions are atomic, at one cluster time, and in their own order."""
    numbers = {
        (place, op): number for number, ops in truth.transactions.items() for place, op in ops
    }
    found: dict[int, list[tuple[Place, Version]]] = defaultdict(list)
    for collection, each in versions:
        place = (collection, each.key)
        number = numbers.get((place, each.op)) if each.op is not None else None
        if number is not None:
            found[number].append((place, each))
    findings = []
    for number, archived in found.items():
        ops = truth.transactions[number]
        if len(archived) != len(ops):
            there = [each.op for _, each in archived]
            findings.append(f"transaction {number}: ops {ops}, and archived are {there}")
            continue
        if len({each.at for _, each in archived}) != 1:
            findings.append(
                f"transaction {number}: not at one moment: {[str(v) for _, v in archived]}"
            )
        archived.sort(key=lambda pair: pair[1].token)
        if [(place, each.op) for place, each in archived] != ops:
            findings.append(f"transaction {number}: not in its order {ops}")
    return findings


def check_present(
    collection: str, versions: Sequence[Version], present: Mapping[str, bytes]
) -> list[str]:
    """Check that the last version of each document is the document; missing ones were deleted."""
    last = {each.key: each for each in versions}
    findings = []
    for key in sorted(last.keys() | present.keys()):
        version, document = last.get(key), present.get(key)
        if version is None:
            findings.append(f"{collection}/{key}: is there, and not in the archive")
        elif version.content != document:
            findings.append(f"{collection}/{key}: is not what its last {version} says")
    return findings


def check_stream(
    name: str,
    deliveries: Sequence[Delivery],
    versions: Sequence[Version],
    *,
    start: str,
    key: str | None,
    asked_version: bool,
) -> list[str]:
    """Compare a subscriber's events with the archive from its first token on: each once, in order.

    Args:
        start: its first resume token, without the deployment's tag.
        key: the document that it follows; None: all.
    """
    expected = [
        Delivery(
            each.token,
            each.key,
            each.operation,
            each.number if asked_version else None,
            each.op,
            each.gap,
        )
        for each in versions
        if each.token > start and key in (None, each.key)
    ]
    findings = []
    for place, (told, right) in enumerate(zip(deliveries, expected, strict=False)):
        if told != right:
            findings.append(
                f"{name}: {place}: was told {_brief(told)}, and right is {_brief(right)}"
            )
            break
    if len(deliveries) != len(expected):
        findings.append(
            f"{name}: was told {len(deliveries)} changes, and right are {len(expected)}"
        )
    if findings:
        found = _differing([_brief(each) for each in deliveries], [_brief(e) for e in expected])
        findings += [f"{name}: {each}" for each in found]
    return findings


def _brief(delivery: Delivery) -> str:
    """Return the cluster time of a delivery and its content, without the rest of the token."""
    shown = f"{delivery.operation} {delivery.key} v{delivery.version} op {delivery.op}"
    return f"{delivery.token[:16]} {shown}{' gap' if delivery.gap else ''}"
