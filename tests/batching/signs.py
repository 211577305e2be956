"""Input values by which a test tells the backend `joined` to wait or to fail."""

WAITS, FAILS = 777.0, -666.0
