"""Layouts of collections that keep their versions themselves."""
