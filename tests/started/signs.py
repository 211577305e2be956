"""Numbers by which a test tells the backend `starting` what to do with a run: the first of its first input.

A run with any other number ends as soon as it is computed.
"""

# From each on a hundred: a run that ends when the test says so, with its number, or when it is cancelled; and one that
# nothing ends but that.
HELD, DEAF = -1000.5, -2000.5
# It ends twice; with a fault, with an error for its client, or with what is no Exception.
TWICE, FAILS, REFUSED, ABANDONED = -3001.5, -3002.5, -3003.5, -3006.5
# It ends before `start` returns; and `start` raises a fault.
AT_ONCE, RAISES = -3004.5, -3005.5
