"""Layouts: how a collection stores its documents and versions, with one interface for all.

Source: docs/decisions/0019-layouts.md.
"""
