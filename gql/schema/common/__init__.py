"""Inputs, scalars, enums and helpers that several types share."""
