"""The driver: client, codecs, translation of its errors."""
