"""A model from observed documents: profiles of fields, their types, relations, and the text."""
