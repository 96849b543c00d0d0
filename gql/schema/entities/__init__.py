"""Types of documents, versions, drafts and comments."""
