"""Definitions of fields and types, compiled for execution."""
