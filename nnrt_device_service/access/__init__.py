"""Who clients are, what they may do, and the files that say so."""
