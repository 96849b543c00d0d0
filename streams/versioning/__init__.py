"""Version numbers and attribution."""
