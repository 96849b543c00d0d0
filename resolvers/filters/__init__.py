"""Filters: from a `where` argument to a query or a predicate."""
