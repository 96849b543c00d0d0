"""Recording change events as versions: parts of the recorder."""
