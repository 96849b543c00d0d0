"""Compiler: from the text of a schema.graphql to a `Model`."""
