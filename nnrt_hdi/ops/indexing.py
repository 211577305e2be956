"""Elements picked or placed by their index."""
