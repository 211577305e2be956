"""Order of runs on the device, and the drain gate."""
