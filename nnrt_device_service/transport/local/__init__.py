"""Local socket: runs and shared memory for clients on this host."""
