"""Limits of the protocol, which both ends keep."""

# NNRt's, of one device buffer.
MAX_BUFFER_BYTES = 1 << 30
# What a client draws for a compilation, so that it can ask again for what was made.
REQUEST_ID_BYTES = 16
# Of one CancelRuns.
MAX_RUN_IDS = 1024
# Of one RunReply, and of each name in them.
MAX_OPERATOR_TIMES = 10_000
OPERATOR_NAME_BYTES = 200
# Of one packet on the local socket.
LOCAL_PACKET_BYTES = 64 * 1024
# Frames in one packet.
MAX_FRAMES = 32
# Descriptions that a daemon keeps of a session: the latest.
MAX_DESCRIPTIONS = 1024
# From here on numbers of shared buffers are the client's to choose.
FIRST_CLIENT_BUFFER_ID = 1 << 63

# Who connects to the socket of that name, beside a daemon's Unix socket, is sent a ticket that says whose it is.
TICKET_SUFFIX = ".who"
TICKET_BYTES = 32
