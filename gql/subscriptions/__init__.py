"""Subscriptions between the engine and the transports."""
