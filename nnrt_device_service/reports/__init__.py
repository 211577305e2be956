"""Reports about a daemon for finding faults in it, without secrets."""
