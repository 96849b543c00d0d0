"""What each field of the API means."""
