"""A version history to replay: the real one where REVSTREAM_REAL_DATA names its folder, else a
generated one with the same difficult cases.

Difficult cases: field names with dots and numeric ones, values that change only their type (1, 1.0,
true), deletions and re-insertions, partial updates and replacements, arrays changed by item and
as a whole.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.collection import Collection

from tests.support.exhaustive import scaled

MODEL = """
type Feature @collection(name: "features") {
  id: ID!
  title: String
  description: String
  spec: String
  status: String
  links: [Link!]
  bugs: JSON
  categories: [String!]
  stats: JSON
  notes: String
  notes_by_num: JSON
  usage_perc_y: JSON
  usage_perc_a: JSON
  ucprefix: Boolean
  parent: String
  keywords: String
  ie_id: String
  chrome_id: String
  firefox_id: String
  webkit_id: String
  shown: Boolean
}
type Link { url: String title: String }
"""
# Settings of the started gateways have the same prefix.
WHOLE = bool(os.environ.pop("REVSTREAM_TEST_WHOLE", ""))
"""True if tests use the whole history, where a part would do, or run as long as is
promised, for manual runs."""
DATA = "caniuse-history.jsonl.gz"
FIELDS = """
  title description spec status links { url title } bugs categories stats notes notes_by_num
  usage_perc_y usage_perc_a ucprefix parent keywords ie_id chrome_id firefox_id webkit_id shown
"""


@dataclass(frozen=True, slots=True)
class Event:
    """One write: `body` is the document after it, None for a deletion; `seq` counts per document
    from 1."""

    doc: str
    seq: int
    body: dict[str, Any] | None


def real_history() -> list[Event] | None:
    """Return the whole real history, or None where it is not installed."""
    folder = os.environ.get("REVSTREAM_REAL_DATA")
    if not folder:
        return None
    with gzip.open(Path(folder) / DATA, "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [Event(each["doc"], each["seq"], each["body"]) for each in found]


def random_history(count: int = 1500, documents: int = 25, seed: int = 11) -> list[Event]:
    """Generate a history of the same shape from a seed."""
    dice = random.Random(seed)
    present: dict[str, dict[str, Any] | None] = {}
    seqs: dict[str, int] = {}
    events = []
    while len(events) < count:
        doc = f"feature-{dice.randrange(documents)}"
        body = present.get(doc)
        if body is None:
            after: dict[str, Any] | None = _new_body(dice)
        elif dice.random() < 0.04:
            after = None
        else:
            after = _changed(dice, body)
        if after == body and after is not None:
            continue
        seqs[doc] = seqs.get(doc, 0) + 1
        present[doc] = after
        events.append(Event(doc, seqs[doc], after))
    return events


def _new_body(dice: random.Random) -> dict[str, Any]:
    return {
        "title": f"Feature {dice.randrange(1000)}",
        "status": dice.choice(("wd", "cr", "rec")),
        "links": [{"url": f"https://example.org/{n}", "title": f"Link {n}"} for n in range(3)],
        "categories": ["CSS"],
        "stats": {
            "ie": {"5.5": "n", "6": "n", "10": "p"},
            "edge": {"12": "y", "130": "y"},
            "safari": {"15.2-15.3": "a #1"},
        },
        "notes": "",
        "usage_perc_y": dice.choice((0, 0.0, 12.5)),
        "ucprefix": False,
        "api_body": True,
    }


def _changed(dice: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    after = json.loads(json.dumps(body))
    for _ in range(dice.randint(1, 3)):
        match dice.randrange(8):
            case 0:
                after["title"] = f"Feature {dice.randrange(1000)}"
            case 1:
                browser = dice.choice(("ie", "edge", "safari"))
                version = dice.choice(("5.5", "6", "130", "131", "15.4", "15.2-15.3"))
                after["stats"].setdefault(browser, {})[version] = dice.choice(("y", "n", "a"))
            case 2:
                after["usage_perc_y"] = dice.choice((1, 1.0, 0, 0.0, 33.3))
            case 3:
                after["links"][dice.randrange(len(after["links"]))]["title"] = (
                    f"T{dice.random():.3f}"
                )
            case 4:
                after["links"].append({"url": "https://example.org/new", "title": "New"})
                del after["links"][6:]
            case 5:
                after.pop("notes", None) if "notes" in after else after.update(notes="a, b")
            case 6:
                after["categories"] = dice.choice((["CSS"], ["JS", "DOM"], []))
            case 7:
                after["stats"].pop(dice.choice(("ie", "edge")), None)
    return after


def replay(uri: str, database: str, upto: int, start: int = 0) -> None:
    """Write the history's events from index `start` up to `upto`.

    The real history is written by its own loader, a program of its own.
    """
    folder = os.environ.get("REVSTREAM_REAL_DATA")
    if not folder:
        with MongoClient[dict[str, Any]](uri) as client:
            for _ in write(client[database]["features"], HISTORY[:upto], start):
                pass
        return
    loader = Path(folder) / "load.py"
    command = [
        *(sys.executable, str(loader), str(Path(folder) / DATA)),
        *("--uri", uri, "--db", database),
        *("--coll", "features", "--limit", str(upto), "--skip", str(start)),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def write(
    collection: Collection[dict[str, Any]], events: list[Event], start: int = 0
) -> Iterator[int]:
    """Write events from index `start` on, one at a time; yields the index after each. Counts
    `version`."""
    present = {each.doc: each.body for each in events[:start]}
    for index in range(start, len(events)):
        event = events[index]
        before = present.get(event.doc)
        key = {"_id": event.doc}
        if event.body is None:
            assert collection.delete_one(key).deleted_count == 1
        elif before is None:
            collection.insert_one({**key, "version": event.seq, **event.body})
        elif index % 3 == 0 or not _updatable(before, event.body):
            collection.replace_one(key, {"version": event.seq, **event.body})
        else:
            collection.update_one(key, _update(before, event.body, event.seq))
        present[event.doc] = event.body
        yield index + 1


def _updatable(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return not any("." in name or not name for name in {*before, *after})


def _update(before: Mapping[str, Any], after: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return an update of top-level fields, and of nested fields whose names allow a path."""
    sets: dict[str, Any] = {"version": version}
    unsets: dict[str, str] = {}
    for name in {*before, *after}:
        old, new = before.get(name), after.get(name)
        if name not in after:
            unsets[name] = ""
        elif same_json(old, new):
            continue
        elif (
            isinstance(old, dict) and isinstance(new, dict) and old and new and _updatable(old, new)
        ):
            for inner in {*old, *new}:
                if inner not in new:
                    unsets[f"{name}.{inner}"] = ""
                elif not same_json(old.get(inner), new[inner]):
                    sets[f"{name}.{inner}"] = new[inner]
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            for position, item in enumerate(new):
                if not same_json(old[position], item):
                    sets[f"{name}.{position}"] = item
        else:
            sets[name] = new
    return {"$set": sets, **({"$unset": unsets} if unsets else {})}


def same_json(one: Any, other: Any) -> bool:
    """Compare JSON so that 1, 1.0 and true differ; independent of the code under test."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_json(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def api_body(body: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a body as the API returns it: every field of the model, null where it has none."""
    return None if body is None else {name: body.get(name) for name in _NAMES}


_NAMES = FIELDS.replace("{ url title }", "").split()
_ALL = real_history() or random_history()
HISTORY = scaled(all=_ALL, fast=_ALL[:1500])
