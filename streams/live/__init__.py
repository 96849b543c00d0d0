"""Live events: fan-out to subscribers, replay, and progress of the archives."""
