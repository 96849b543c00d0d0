"""The images after writes, as the server's change streams make them.

MongoDB applies what an update says it has changed to the image before. Where an update by a
pipeline has moved a field to another place, it appends the field and leaves the old one where it
was, so that the image has the field twice; drivers show the last one, and the server's own
projections stop too early, leaving out what comes behind (seen on 6.0.5). Here the old one goes:
what is left is the document as it is stored. Fields that the update has not written are kept byte
for byte: a document may hold a key twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bson.raw_bson import RawBSONDocument

from revstream.streams.mongo.driver.codecs import RAW
from revstream.streams.raw_bson.fields import (
    document_from_elements,
    iterate_elements,
    split_objects,
)

__all__ = ["repair_post_image"]

_UPDATED = frozenset({b"updatedFields"})
# BSON's types of documents and arrays.
_CONTAINERS = frozenset({0x03, 0x04})


def repair_post_image(
    after: RawBSONDocument | None, update: RawBSONDocument | None
) -> RawBSONDocument | None:
    """The document after an update that is so described, each field that it has written once."""
    if after is None or update is None:
        return after
    changed = _changed(bytes(update.raw))
    if not changed:
        return after
    raw = bytes(after.raw)
    if b"." not in b"".join(changed) and _stand_once(raw, changed):
        return after
    once = _each_once(raw, changed)
    return after if len(once) == len(raw) else RawBSONDocument(once, RAW)


def _changed(update: bytes) -> list[bytes]:
    """The paths of the fields that it gives a value to."""
    objects, _ = split_objects(update, _UPDATED)
    updated = objects.get(b"updatedFields")
    return [] if updated is None else [name for name, _ in iterate_elements(updated)]


def _stand_once(raw: bytes, names: Iterable[bytes]) -> bool:
    """Whether these can be seen to be there once, which nearly all are, without decoding any. Not
    where there is such a name, or the end of one, elsewhere in the document, too."""
    # A loop takes half the time of all() and a generator.
    for name in names:  # noqa: SIM110
        if raw.count(name + b"\0") != 1:
            return False
    return True


def _each_once(raw: bytes, paths: Sequence[bytes]) -> bytes:
    """The document with the fields on these dotted paths where they stand last, and not before."""
    written: dict[bytes, list[bytes]] = {}
    for path in paths:
        written.setdefault(path.partition(b".")[0], []).append(path)
    elements = list(iterate_elements(raw))
    last = {name: place for place, (name, _) in enumerate(elements)}
    kept: list[bytes] = []
    for place, (name, element) in enumerate(elements):
        # A name may have dots in it.
        candidates = written.get(name.partition(b".")[0], ())
        deeper = [each[len(name) + 1 :] for each in candidates if each.startswith(name + b".")]
        if (deeper or name in candidates) and last[name] != place:
            continue
        if deeper and element[0] in _CONTAINERS:
            value = element.index(0, 1) + 1
            element = element[:value] + _each_once(element[value:], deeper)
        kept.append(element)
    return document_from_elements(kept)
