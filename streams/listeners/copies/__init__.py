"""Copies of fields (`@copy`), kept equal to their sources."""
