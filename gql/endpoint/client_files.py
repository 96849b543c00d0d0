"""Configuration files for the caches and code generators of clients.

Source: Apollo Client, `possibleTypes`; urql, Graphcache "Schema Awareness" and "Custom Keys"; The
Guild, graphql-codegen `scalars`; Relay, `relay.config.json`. docs/how-to/code-generation.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from graphql import (
    GraphQLSchema,
    build_schema,
    introspection_from_schema,
    is_abstract_type,
    is_object_type,
    is_scalar_type,
    is_specified_scalar_type,
)
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from revstream.gql.endpoint.pages import Handle

__all__ = ["client_files", "client_routes"]

# TypeScript types of scalars; others are `string`.
_TYPESCRIPT = {"JSON": "unknown", "Long": "number | string"}


def client_files(sdl: str) -> Mapping[str, Any]:
    """Return the contents of the files, as JSON, by name."""
    schema = build_schema(sdl)
    files = {
        "possible-types": _possible_types(schema),
        "scalars": _scalars(schema),
        "graphcache": _graphcache(schema),
        "codegen": _codegen(schema),
    }
    node: Any = schema.type_map["Node"]
    # relay-compiler accepts no schema with the default naming.
    return {**files, "relay": _relay(schema)} if "id" in node.fields else files


def client_routes(sdl: str, guarded: Callable[[Handle], Handle]) -> list[Route]:
    """Serve the files under `/client/`, as `<name>.json`.

    Args:
        guarded: checks that the caller may know the schema.
    """
    # Built on the first request: few clients need them, and parsing is slow.
    files = cache(lambda: client_files(sdl))

    async def client_file(request: Request) -> Response:
        name = request.path_params["name"]
        found = files().get(name)
        if found is None:
            known = ", ".join(f"/client/{each}.json" for each in files())
            text = "relay.json: requires --relay" if name == "relay" else "not found"
            return PlainTextResponse(f"{text}; expected {known}\n", status_code=404)
        return JSONResponse(found)

    return [Route("/client/{name}.json", guarded(client_file))]


def _possible_types(schema: GraphQLSchema) -> Mapping[str, list[str]]:
    return {
        name: sorted(each.name for each in schema.get_possible_types(type_))
        for name, type_ in sorted(schema.type_map.items())
        if is_abstract_type(type_) and not name.startswith("__")
    }


def _scalars(schema: GraphQLSchema) -> Mapping[str, str]:
    names = sorted(
        name
        for name, type_ in schema.type_map.items()
        if is_scalar_type(type_) and not is_specified_scalar_type(type_)
    )
    return {name: _TYPESCRIPT.get(name, "string") for name in names}


def _graphcache(schema: GraphQLSchema) -> Mapping[str, Any]:
    """Return the schema for Graphcache, and the types without an id, which have no key."""
    roots = {schema.query_type, schema.mutation_type, schema.subscription_type}
    keyless = [
        name
        for name, type_ in sorted(schema.type_map.items())
        if is_object_type(type_)
        and type_ not in roots
        and "id" not in type_.fields
        and not name.startswith("__")
    ]
    introspected = introspection_from_schema(schema, descriptions=False)
    return {"schema": introspected, "keyless": keyless}


def _codegen(schema: GraphQLSchema) -> Mapping[str, Any]:
    config = {"scalars": _scalars(schema), "strictScalars": True, "useTypeImports": True}
    return {
        "schema": "schema.graphql",
        "documents": ["src/**/*.{ts,tsx}"],
        "generates": {"src/gql/": {"preset": "client", "config": config}},
    }


def _relay(schema: GraphQLSchema) -> Mapping[str, Any]:
    return {
        "src": "./src",
        "schema": "./schema.graphql",
        "language": "typescript",
        "eagerEsModules": True,
        "customScalarTypes": _scalars(schema),
    }
