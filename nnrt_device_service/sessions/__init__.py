"""Sessions, and the objects that each client owns in the daemon until its session ends."""
