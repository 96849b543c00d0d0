"""What the gateway is measured beside: the same shop, served by others."""
