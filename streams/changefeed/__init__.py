"""The server's change stream: what is asked of it and what its tokens mean."""
