"""The services over gRPC."""
