"""Webhooks (`@sink`): signed deliveries, retries and parked deliveries."""
