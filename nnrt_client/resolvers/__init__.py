"""From the names of devices to the addresses of their daemons, by systems made for that. Knows no sessions."""
