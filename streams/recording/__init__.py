"""Recording: from change events to versions in the archive."""
