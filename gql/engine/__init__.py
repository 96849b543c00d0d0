"""GraphQL execution: definitions, limits, requests, compiled and general execution."""
