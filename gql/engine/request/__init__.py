"""State of one request: its context, plan, loaders and services."""
