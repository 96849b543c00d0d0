"""Recorders, consumers and sinks of a process, each under its lease."""
