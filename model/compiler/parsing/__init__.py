"""Parsing of declarations and directives."""
