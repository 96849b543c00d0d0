"""The model language: its directives, enums and scalars, written in GraphQL itself.

`LANGUAGE` is the one definition: `model.compiler.parsing.directives` checks what a user writes
against it, and docs/reference/model.md explains it. It is good for an editor too, which can then
complete the directives and underline what it does not know.
"""

from __future__ import annotations

from graphql.language import DirectiveDefinitionNode, EnumTypeDefinitionNode, parse

__all__ = ["DIRECTIVES", "ENUMS", "LANGUAGE"]

LANGUAGE = '''\
"""
Makes a type an entity: the documents of a MongoDB collection, each with a history.
Without it, a type describes an embedded document.
"""
directive @collection(
  "The collection's name in MongoDB."
  name: String!
  "The root field that lists the documents; by default the collection's name in camelCase."
  plural: String
  "The stored field that counts a document's writes; null if documents have none."
  version: String = "version"
  "How versions are kept."
  history: History! = ARCHIVE
  "How the archive stores a version."
  storage: Storage! = FULL
  "Number of parts, by document ids, into which its recording is divided among processes."
  partitions: Int! = 1
  "Retention: `400 days`, `50 versions`; everything if not set."
  keep: String
) on OBJECT | INTERFACE

"""
Names of the fields of a layout, if `history` is not ARCHIVE. The number of a version is in the
field that `@collection(version:)` names.
"""
directive @layout(
  "The field that holds the document's id, where each version is a document."
  document: String! = "docId"
  "CURRENT_FLAG: the flag of the current version. EMBEDDED: the field with the current state."
  current: String! = "current"
  "EMBEDDED: the list of previous states, `prev`. SEPARATE: their collection, `<name>.previous`."
  previous: String
  "DELTAS: the list of the fields that a version no longer has."
  unset: String! = "unset"
  "DELTAS: true in a version that has all fields, whatever the previous version has."
  whole: String! = "whole"
  "True in a version with which the document was deleted."
  deleted: String! = "deleted"
  "The field with the time of a version's write, if one exists."
  at: String
) on OBJECT | INTERFACE

"The field's name in MongoDB, or the text that an enum's value is stored as, where that differs."
directive @stored(as: String!) on FIELD_DEFINITION | ENUM_VALUE

"""
Documents of several types, told apart by the text in one of their fields. On an interface, the
types that implement it are the members. With `@collection` they are the documents of a collection.
"""
directive @discriminator(
  "The name of that field in the API; all members have it."
  field: String!
  "Its name in MongoDB, where that differs."
  storedAs: String
) on UNION | INTERFACE

"The value of the discriminator in documents of this type, if that is not the type's name."
directive @variant(value: String!) on OBJECT

"To one: the document of another collection whose id is in the field `by` beside this one."
directive @reference(by: String!) on FIELD_DEFINITION

"To many: the documents of another collection whose field `field` holds this document's id."
directive @referencedBy(field: String!) on FIELD_DEFINITION

"A copy of `reference.field`, kept equal by revstream."
directive @copy(of: String!) on FIELD_DEFINITION

"The number that orders events, which may arrive in any order."
directive @fence on FIELD_DEFINITION

"""
An index over fields of the type, or of documents embedded in it (`dimensions.width`); of kind
2dsphere for a field of type Point.
"""
directive @index(fields: [String!]!, unique: Boolean! = false) repeatable on OBJECT | INTERFACE

"""
A text index, for the argument `search` of the list of documents. A field with a higher weight
counts more. In a `language`, words are found by their stems.
"""
directive @search(
  "Fields of text, or lists of text; in embedded documents too (`lines.note`)."
  fields: [String!]!
  "A number for each field, 1 if not set."
  weights: [Int!]
  "The language of the words, such as `english`; `none`: words as they are."
  language: String! = "none"
) on OBJECT | INTERFACE

"No two documents of the collection have the same value here."
directive @unique on FIELD_DEFINITION

"""
Roles that may read and write; without it, all callers may. `rows` narrows the documents to those
that match a filter with variables for claims: `{ ownerId: { eq: $sub } }`. `propose` and
`publish` are the roles for drafts (without them, those of `write`), `comment` those for comments
(without it, those of `read`). `publishOwn: false`: no caller publishes a draft of its own.
"""
directive @access(
  read: [String!]
  write: [String!]
  rows: String
  propose: [String!]
  comment: [String!]
  publish: [String!]
  publishOwn: Boolean! = true
) on OBJECT | INTERFACE | UNION | FIELD_DEFINITION

"Delivers changes to a URL as CloudEvents, in order and at least once; all operations or some."
directive @sink(url: String!, operations: [Operation!]) repeatable on OBJECT | INTERFACE

"How versions of a collection are kept."
enum History {
  "In a collection of their own, made from the change stream."
  ARCHIVE
  "Each version is a document."
  DOCUMENT_PER_VERSION
  "Each version is a document, and one is flagged as the current one."
  CURRENT_FLAG
  "Inside the document, as a list of previous states."
  EMBEDDED
  "Previous states in a second collection that the application writes."
  SEPARATE
  "Only the fields that changed, one document per version."
  DELTAS
}

"How the archive stores a version."
enum Storage {
  "Each version whole."
  FULL
  "As the difference to the previous version, with whole versions at intervals."
  DELTA
}

"Operation of a version."
enum Operation {
  "The document existed when revstream first read it."
  BASELINE
  INSERT
  UPDATE
  REPLACE
  DELETE
}

"64-bit integer."
scalar Long

"Decimal128: exact, 34 digits."
scalar Decimal

"A time in UTC, to the millisecond."
scalar DateTime

"A day without a time, stored as midnight in UTC."
scalar Date

"MongoDB's own timestamp: seconds since 1970 and a counter, as text: 1714550400:1."
scalar Timestamp

"MongoDB's own id: 12 bytes, shown as 24 hexadecimal digits."
scalar ObjectID

"128-bit id, stored as BSON binary of subtype 4."
scalar UUID

"Binary data of subtype 0, as Base64."
scalar Binary

"A point on earth, stored as GeoJSON of type Point: longitude and latitude."
scalar Point

"Any JSON: objects, lists and values without a declared type."
scalar JSON
'''

_DEFINITIONS = parse(LANGUAGE, no_location=True).definitions

DIRECTIVES: dict[str, DirectiveDefinitionNode] = {
    each.name.value: each for each in _DEFINITIONS if isinstance(each, DirectiveDefinitionNode)
}
"""The directives by name."""

ENUMS: dict[str, tuple[str, ...]] = {
    each.name.value: tuple(value.name.value for value in each.values or ())
    for each in _DEFINITIONS
    if isinstance(each, EnumTypeDefinitionNode)
}
"""The values of the enums that directives take, by the enum's name."""
