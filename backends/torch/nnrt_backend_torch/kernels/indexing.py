"""Elements read or written by their index."""
