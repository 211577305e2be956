"""Reports: what somebody has to know of a daemon who looks for a fault in it, without secrets."""
