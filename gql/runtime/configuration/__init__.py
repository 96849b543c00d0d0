"""Configuration of a process: settings, options, handlers, sign-in."""
