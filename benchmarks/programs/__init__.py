"""What runs in a process of its own beside the gateway, so that it neither shares its core nor its interpreter."""
