"""Drafts of documents and comments on them: proposed, discussed, published or rejected."""
