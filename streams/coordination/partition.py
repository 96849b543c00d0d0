"""Partitions of a collection: how many there are, and which document belongs to which.

A hash of the document's `_id` decides. It is equal for ids that MongoDB takes for the same key, and
the same in every process, so each document keeps its order, whichever process records it. Source:
docs/decisions/0015-partitions.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from revstream.model.definition import Model
from revstream.streams.changefeed.event import ChangeEvent, key_hash

__all__ = ["Partition", "collection_partitions", "model_partitions"]

_NAME = re.compile(r"recorder:(?P<collection>.*?)(:(?P<number>[0-9]+)/(?P<count>[0-9]+))?\Z", re.S)


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """The documents of a collection whose hash modulo `count` is `index`."""

    collection: str
    index: int = 0
    count: int = 1

    @property
    def label(self) -> str:
        """Name shown to people: `products`, or `products:1/4`."""
        part = "" if self.count == 1 else f":{self.index + 1}/{self.count}"
        return self.collection + part

    @property
    def name(self) -> str:
        """Name of the partition's lease and of its checkpoint."""
        return f"recorder:{self.label}"

    @classmethod
    def from_name(cls, name: str) -> Partition | None:
        """Return the partition whose lease has this name; None for the name of another lease."""
        # Unambiguous: no collection of a model has a name that ends in `:1/4`.
        found = _NAME.match(name)
        if found is None:
            return None
        number, count = (int(found[each] or 1) for each in ("number", "count"))
        return cls(found["collection"], number - 1, count)

    def contains(self, key: Any) -> bool:
        """Return whether the document with this `_id` belongs to the partition."""
        return self.count == 1 or key_hash(key) % self.count == self.index

    def concerns(self, event: ChangeEvent) -> bool:
        """Return whether an event is one of this partition; an event of the collection concerns
        all.
        """
        if self.count == 1 or not event.is_write:
            return True
        return event.key_hash % self.count == self.index

    def own_number(self, number: int) -> int:
        """Map 0, 1, 2, … to numbers that no other partition of the collection uses."""
        return number * self.count + self.index


def collection_partitions(collection: str, count: int) -> tuple[Partition, ...]:
    return tuple(Partition(collection, index, count) for index in range(count))


def model_partitions(model: Model) -> tuple[Partition, ...]:
    """Return the partitions of all collections, in the model's order."""
    return tuple(
        partition
        for entity in model.entities
        for partition in collection_partitions(entity.collection, entity.partitions)
    )
