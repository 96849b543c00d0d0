"""Parts that all layouts share."""
