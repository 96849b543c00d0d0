"""The `revstream` command and its sub-commands."""
