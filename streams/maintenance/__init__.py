"""Maintenance: retention, truncation, migration, verification and diagnosis."""
