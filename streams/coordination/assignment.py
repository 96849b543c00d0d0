"""Assignment of partitions to processes: each partition to one live process, in equal shares. Pure.

Every process computes the same result from the members and leases that the database holds.
Partitions that are held stay where they are, as far as equal shares allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from revstream.streams.coordination.partition import Partition, collection_partitions

__all__ = ["Member", "assign_partitions"]


@dataclass(frozen=True, slots=True)
class Member:
    """A live process that offers to record.

    Attributes:
        since: Start of the process, by the database's clock.
        offers: By collection, the number of partitions into which its model divides it.
    """

    holder: str
    since: datetime
    offers: Mapping[str, int]


def assign_partitions(
    members: Iterable[Member], held: Mapping[Partition, str]
) -> dict[Partition, str]:
    """Return the holder that each partition should have.

    Where models differ, the model of the process started last decides. Partitions of another count
    are assigned to no process, and while one of them is held, no free partition of that collection
    is assigned. A partition whose holder is no member stays with it.

    Args:
        held: Partitions under leases that have not expired, with their holders.
    """
    by_age = sorted(members, key=lambda each: (each.since, each.holder))
    counts = {name: count for each in by_age for name, count in each.offers.items()}
    offering = {
        name: [each.holder for each in by_age if each.offers.get(name) == count]
        for name, count in counts.items()
    }
    blocked = {each.collection for each in held if counts.get(each.collection) != each.count}
    shares = _Assignment([each.holder for each in by_age])
    free = []
    for name, count in sorted(counts.items()):
        for partition in collection_partitions(name, count):
            holder = held.get(partition)
            if holder in offering[name]:
                shares.assign(partition, holder)
            elif holder is None and name not in blocked:
                free.append(partition)
    for partition in free:
        shares.assign(partition, shares.least_loaded(partition, offering[partition.collection]))
    while shares.rebalance(offering):
        pass
    return shares.holders


class _Assignment:
    """Partitions and their holders, with the load of each holder per collection and in total."""

    def __init__(self, holders: Sequence[str]) -> None:
        self.holders: dict[Partition, str] = {}
        self._rank = {holder: rank for rank, holder in enumerate(holders)}
        self._load: Counter[tuple[str, str | None]] = Counter()

    def assign(self, partition: Partition, holder: str) -> None:
        earlier = self.holders.get(partition)
        if earlier is not None:
            self._load.subtract([(earlier, partition.collection), (earlier, None)])
        self.holders[partition] = holder
        self._load.update([(holder, partition.collection), (holder, None)])

    def least_loaded(self, partition: Partition, holders: Sequence[str]) -> str:
        """Return the holder with the fewest partitions of the collection, then in total, then the
        oldest.
        """
        return min(holders, key=lambda each: (*self._loads(each, partition), self._rank[each]))

    def rebalance(self, offering: Mapping[str, Sequence[str]]) -> bool:
        """Move one partition to a holder with a smaller share: of its collection, then in total.

        Returns: False where no move makes the shares more equal.
        """
        for partition, holder in sorted(self.holders.items(), reverse=True):
            to = self.least_loaded(partition, offering[partition.collection])
            here, there = self._loads(holder, partition), self._loads(to, partition)
            if (there[0] + 1 - here[0], there[1] + 1 - here[1]) < (0, 0):
                self.assign(partition, to)
                return True
        return False

    def _loads(self, holder: str, partition: Partition) -> tuple[int, int]:
        return self._load[holder, partition.collection], self._load[holder, None]
