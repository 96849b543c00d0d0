"""Indexes and sizes of collections, which decide the class and cost of clients' reads."""

from __future__ import annotations

from revstream.streams.core.read_limiter import ReadClass
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.read_statistics import ReadStatistics


async def test_existing_indexes_decide_the_class_of_reads(mongo: Mongo) -> None:
    """A later index counts, too; partial and special indexes cover a part only."""
    statistics = ReadStatistics(mongo, ["things", "absent"])
    await mongo.insert_in_order("things", [{"_id": n, "sku": str(n)} for n in range(3)])
    await mongo.create_index("things", [("text", "text")])
    await mongo.create_index("things", [("n", 1)], partialFilterExpression={"n": {"$gt": 5}})
    await statistics.refresh()
    query = {"sku": "1"}
    limiter = mongo.limiter
    assert limiter.class_of_find("things", query, [("_id", 1)], 21) is ReadClass.SCAN
    assert limiter.class_of_find("things", {"n": 7}, [("_id", 1)], 21) is ReadClass.SCAN
    await mongo.create_index("things", [("sku", 1), ("n", -1)])
    await statistics.refresh()
    assert limiter.class_of_find("things", query, [("_id", 1)], 21) is ReadClass.INDEXED
    assert limiter.class_of_find("things", {}, [("sku", 1), ("n", -1)], 21) is ReadClass.INDEXED
    assert limiter.sizes == {"things": 3, "absent": 0}
