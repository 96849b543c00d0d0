"""Access to MongoDB: reads, writes, transactions and server checks."""
