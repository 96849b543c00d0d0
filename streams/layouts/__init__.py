"""How a collection keeps its documents and their versions: one interface, an adapter for each way.

Source: docs/decisions/0019-layouts.md.
"""
