"""The GraphQL schema of a model: `build_schema`, and its text, `print_sdl`.

assembly         puts it together
building, fields how types and their fields are made at run time
scalars, enums, interfaces, filters   what all models have, and what follows from their fields
states, versions, connections, back_links   the types of one entity
queries, nodes, subscriptions   the roots
naming           what ids are called
descriptions     what is said of fields whose model says nothing
"""

from revstream.gql.schema.build import build_schema, print_sdl
from revstream.gql.schema.common.id_naming import select_naming

__all__ = ["build_schema", "print_sdl", "select_naming"]
