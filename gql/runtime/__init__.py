"""Process of a gateway: its services, its background tasks, and its command-line options."""
