"""Samples of collections: profiles of their documents, and the documents that differ from them."""
