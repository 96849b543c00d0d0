"""Hints in errors about a request: what to write instead."""
