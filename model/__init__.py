"""What a schema.graphql says."""
