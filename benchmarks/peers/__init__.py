"""Alternatives to the gateway: the same shop, served by other programs."""
