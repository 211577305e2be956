"""Fleet of one host: the devices that have a daemon, and the supervisor that keeps the daemons running."""
