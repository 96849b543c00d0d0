"""Example queries for a model: the tabs of GraphiQL, and output of the demo.

They name no document, so that they work on any data: history, an as-of read beside the current
documents, and changes. They are built for each request, because the time of the as-of read is the
time of the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from string import Template

from revstream.model.definition import Entity, EnumType, Model, Scalar

__all__ = ["Example", "examples_of"]

# Fields by which people recognize a document come first; `FIELDS` of them are enough.
TELLING = ("name", "title", "label", "sku")
FIELDS = 4

TEMPLATES = {
    "History": """\
# Documents with their last versions:
# what changed, when, and by whom.
query History {
  $plural(first: 3) {
    nodes {
      $fields
      version
      history(first: 5) {
        nodes {
          version
          operation
          at
          author
          diff { path kind before after }
        }
      }
    }
  }
}
""",
    "ThenAndNow": """\
# The collection when these tabs were opened, and now.
# Choose another time, as far back as you like.
query ThenAndNow {
  then: ${plural}AsOf(asOf: { time: "$moment" }, first: 5) {
    nodes {
      documentId
      version
      document { $fields }
    }
  }
  now: $plural(first: 5) {
    nodes { $fields version }
  }
}
""",
    "Live": """\
# Changes as they happen. Keep a resumeToken:
# (after: "...") goes on exactly there, however late.
subscription Live {
  ${singular}Changes {
    kind
    operation
    documentId
    version
    at
    diff { path kind before after }
    $singular { $fields }
    resumeToken
  }
}
""",
    "Now": """\
# The current resume token, and the recorders and listeners.
query Now {
  resumeToken
  streams { name collection state owner lagSeconds }
}
""",
}


@dataclass(frozen=True, slots=True)
class Example:
    """Query with its name, which is also the name of its operation."""

    name: str
    query: str


def examples_of(model: Model, now: datetime | None = None) -> tuple[Example, ...]:
    """Build the examples for the entity with most fields; the first of equals.

    Args:
        now: time of the as-of example; None: the clock's.
    """
    if not model.entities:
        return ()
    entity = max(model.entities, key=lambda each: len(each.fields) + len(each.references))
    moment = (now or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="milliseconds")
    facts = {
        "singular": entity.singular,
        "plural": entity.plural,
        "fields": _selection(entity),
        "moment": moment.replace("+00:00", "Z"),
    }
    return tuple(
        Example(name, Template(text).substitute(facts)) for name, text in TEMPLATES.items()
    )


def _selection(entity: Entity) -> str:
    """Return the id and up to `FIELDS` fields without a selection of their own, as GraphQL text."""
    plain = [
        each.name
        for each in entity.fields[1:]
        if isinstance(each.type, Scalar | EnumType) and each.type not in (Scalar.JSON, Scalar.POINT)
    ]
    telling = [name for name in TELLING if name in plain]
    return " ".join(
        ["id", *telling, *(name for name in plain if name not in telling)][: FIELDS + 1]
    )
