"""Sessions with daemons: their connections and RPCs, and the devices and runtime that use them."""
