"""Connection to one daemon: its session, the channel of that, and the device behind it."""
