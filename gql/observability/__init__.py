"""Errors, metrics and logs, as clients and operators see them."""
