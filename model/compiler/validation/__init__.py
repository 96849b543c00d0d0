"""Validation of a model, one directive or rule per module."""
