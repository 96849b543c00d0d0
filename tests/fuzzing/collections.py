"""The model under test: one entity for each layout."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COLLECTIONS", "FuzzedCollection", "model_text"]

FIELDS = """
  id: ID!
  n: Int
  text: String
  big: Long
  share: Float
  flag: Boolean
  price: Decimal
  at: DateTime
  oid: ObjectID
  uuid: UUID
  kind: Kind
  tags: [String!]
  numbers: [Int!]
  sub: Sub
  subs: [Sub!]
  any: JSON
  owner: String
"""
TYPES = """
enum Kind { OPEN IN_PROGRESS @stored(as: "in-progress") }
type Sub { n: Int text: String any: JSON tags: [String!] sub: Leaf }
type Leaf { n: Int text: String }
"""


@dataclass(frozen=True, slots=True)
class FuzzedCollection:
    """A collection under test.

    Attributes:
        options: arguments of its `@collection`; `more`: other directives; `fields`: extra fields.
        layout: the layout in which a program keeps its versions.
        images: whether MongoDB stores post-images of it.
    """

    type: str
    name: str
    options: str = ""
    more: str = ""
    fields: str = ""
    layout: str = "ARCHIVE"
    images: bool = True

    @property
    def one(self) -> str:
        return self.type[0].lower() + self.type[1:]


COLLECTIONS = (
    FuzzedCollection(
        "Plain",
        "plain",
        more='@index(fields: ["n"]) @index(fields: ["tags"]) @sink(url: "SINK")',
        fields="code: String @unique",
    ),
    FuzzedCollection(
        "Packed", "packed", "storage: DELTA, version: null", '@index(fields: ["sub.n", "text"])'
    ),
    FuzzedCollection("Bare", "bare", "storage: DELTA", images=False),
    FuzzedCollection("Blind", "blind", "version: null", images=False),
    FuzzedCollection("Ruled", "ruled", "partitions: 2", '@access(rows: "{ owner: { eq: $sub } }")'),
    FuzzedCollection(
        "Target",
        "targets",
        fields='plainId: ID plain: Plain @reference(by: "plainId")'
        ' name: String @copy(of: "plain.text") copied: Int @copy(of: "plain.n")',
    ),
    *(
        FuzzedCollection(
            kind, f"{kind.lower()}_rows", f'history: {history}, version: "v"', layout=history
        )
        for kind, history in (
            ("Each", "DOCUMENT_PER_VERSION"),
            ("Flagged", "CURRENT_FLAG"),
            ("Embedding", "EMBEDDED"),
            ("Apart", "SEPARATE"),
            ("Changing", "DELTAS"),
        )
    ),
)


def model_text(sink: str) -> str:
    """Return the model.

    Args:
        sink: the URL for webhooks of Plain.
    """
    parts = [TYPES]
    for each in COLLECTIONS:
        options = f", {each.options}" if each.options else ""
        parts.append(
            f'type {each.type} @collection(name: "{each.name}", plural: "{each.one}s"{options})'
            f" {each.more} {{{FIELDS}{each.fields}\n}}\n"
        )
    return "".join(parts).replace("SINK", sink)
