"""All daemons of a host: which there are, and the supervisor that keeps them alive."""
