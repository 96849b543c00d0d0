"""A model from the schemas of other tools: collections, their relations, and who may read them."""
