"""Sockets: the HTTP and WebSocket protocols of uvicorn, with limits."""
