"""Undocumented members of graphql-core and Strawberry, behind plain names."""
