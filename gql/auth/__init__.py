"""Authentication: bearer tokens, API keys, sessions."""
