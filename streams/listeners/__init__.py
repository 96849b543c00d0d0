"""Listeners: versions handed to copies, webhooks and handlers of users."""
