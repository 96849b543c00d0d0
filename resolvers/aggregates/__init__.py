"""Aggregates: counts, sums and other measures of documents, in groups."""
