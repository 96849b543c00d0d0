"""GraphQL schema of a model: `build_schema`, and its text, `print_sdl`.

build     assembly of the whole schema
roots     the types Query, Mutation and Subscription
entities  object types of one entity: documents, versions, drafts, comments, connections
common    scalars, enums, inputs, descriptions, and the builder of Strawberry types
"""

from revstream.gql.schema.build import build_schema, print_sdl
from revstream.gql.schema.common.id_naming import select_naming

__all__ = ["build_schema", "print_sdl", "select_naming"]
