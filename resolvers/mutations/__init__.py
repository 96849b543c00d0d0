"""Writes of documents."""
