"""Numbers that give a run of the backend `starting` special behaviour: the first element of its first input.

A run with any other number ends as soon as it has been computed.
"""

# Beginnings of ranges of a hundred numbers. HELD: the run ends when the test sends its number, or by cancellation.
# DEAF: the run ignores cancellation.
HELD, DEAF = -1000.5, -2000.5
# The run ends twice; with a device fault; with an error for the client; or with an exception that isn't an Exception.
TWICE, FAILS, REFUSED, ABANDONED = -3001.5, -3002.5, -3003.5, -3006.5
# LOST: the device ends the run with a fault, and computes no more.
LOST = -3007.5
# AT_ONCE: the run ends before `start` returns. RAISES: `start` raises a fault.
AT_ONCE, RAISES = -3004.5, -3005.5

# Of the backend `simulated`: runs whose number is a multiple of these end with a fault, or with a refusal.
FAILS_EVERY, REFUSED_EVERY = 97, 89
