"""Pagination: keyset cursors, orders, projections."""
