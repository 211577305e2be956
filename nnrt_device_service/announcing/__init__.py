"""Announcement of a daemon, by which clients discover it. Independent of gRPC and models."""
