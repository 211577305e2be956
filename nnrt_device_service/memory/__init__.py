"""Memory that clients have: one budget, and what counts in it."""
