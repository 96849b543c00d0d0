"""The server's change stream: its options and the meaning of its tokens."""
