"""Coordination of processes through the database: leases, partitions, membership, checkpoints."""
