"""Benchmarks of revstream: each prints its figures beside an alternative in the same run.

The product does not import them.
"""
