"""Subscriptions to changes of documents."""
