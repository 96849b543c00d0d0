"""Handlers of the addresses that a process serves."""
