"""Execution of operations: compiled queries and graphql-core's executor."""
