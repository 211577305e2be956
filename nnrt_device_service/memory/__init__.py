"""Memory of clients: a budget for each session, and what counts in it."""
