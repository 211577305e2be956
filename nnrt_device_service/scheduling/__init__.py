"""The order of runs on the device, and the gate that new work passes."""
