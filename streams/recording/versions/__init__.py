"""Construction of versions from change events and snapshots."""
