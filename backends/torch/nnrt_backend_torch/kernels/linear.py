"""Matrix products, and recurrences built on them."""
