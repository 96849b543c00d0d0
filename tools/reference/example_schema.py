"""Schema of the API for the model of the example shop."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from graphql import GraphQLSchema, build_schema

from revstream.gql.schema import build_schema as build_api
from revstream.gql.schema import print_sdl
from revstream.model.compiler.loader import read_model

__all__ = ["example_schema"]


@cache
def example_schema() -> GraphQLSchema:
    """Build the schema as its clients know it: read from the SDL."""
    model = Path(__file__).parents[2] / "schema.graphql"
    return build_schema(print_sdl(build_api(read_model(model.read_text(encoding="utf-8")))))
