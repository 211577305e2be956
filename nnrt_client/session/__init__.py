"""A connection to one daemon: its session, the channel it goes over, the device behind it."""
