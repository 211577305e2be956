"""How those who have not been told of a daemon find it. Knows no gRPC and no models."""
