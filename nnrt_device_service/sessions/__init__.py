"""Sessions, and what clients own in the daemon until their sessions end."""
