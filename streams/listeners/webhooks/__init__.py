"""Webhooks: signed posts of changes, with retries."""
