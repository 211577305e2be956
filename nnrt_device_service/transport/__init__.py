"""Transports by which calls and runs reach the daemon: gRPC and the local socket."""
