"""Values between the API and BSON."""
