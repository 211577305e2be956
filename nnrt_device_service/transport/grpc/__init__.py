"""gRPC services of the daemon."""
