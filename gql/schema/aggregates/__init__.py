"""Fields, types and inputs of aggregates."""
