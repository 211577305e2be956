"""Sessions, and all that clients own in the daemon until these end."""
