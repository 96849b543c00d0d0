"""Listeners: delivery of versions to copies, webhooks and handlers of users."""
