"""Resolvers, which find the addresses of daemons for names by DNS, Kubernetes and others. They use no sessions."""
