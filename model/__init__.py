"""Schema model: the content of a schema.graphql, and its compiler."""
