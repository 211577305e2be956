"""What the host gives the daemon: threads, memory, and the limits on them."""
