"""HTTP without a server: media types, requests, framing of streams."""
