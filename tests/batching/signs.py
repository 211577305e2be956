"""Numbers among the inputs of a run by which a test tells the backend `joined` what to do with it."""

WAITS, FAILS = 777.0, -666.0
