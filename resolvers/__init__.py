"""Resolvers: the meaning of each field of the API."""
