"""Versions made from change events."""
