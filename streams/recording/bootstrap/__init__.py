"""First recording of a collection: starting position, indexes, initial snapshot."""
