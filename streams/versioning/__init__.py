"""Versions of documents: numbers, attribution, content, checksums."""
