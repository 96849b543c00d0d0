"""Limits of requests: cost, concurrency, fair share, response size."""
