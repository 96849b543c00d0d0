"""What runs in a process of its own, so that it shares neither the gateway's core nor its
interpreter."""
