"""Resolvers, which find the addresses of daemons behind names, by systems made for that. They know no sessions."""
