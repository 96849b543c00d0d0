"""A GraphQL gateway for MongoDB that never forgets."""
