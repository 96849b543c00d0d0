"""Live stream: fan-out of events to subscribers, and replay."""
