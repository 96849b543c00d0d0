"""Administration: purges, status, samples of the data."""
