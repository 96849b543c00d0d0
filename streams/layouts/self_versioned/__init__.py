"""Layouts whose collections store versions themselves."""
