"""Limits of the protocol, which client and daemon keep."""

# NNRt's limit of one device buffer.
MAX_BUFFER_BYTES = 1 << 30
# Random id of a compilation, with which a client can ask again for the result.
REQUEST_ID_BYTES = 16
# Ids in one CancelRuns.
MAX_RUN_IDS = 1024
# Operator times in one RunReply, and bytes of a name in them.
MAX_OPERATOR_TIMES = 10_000
OPERATOR_NAME_BYTES = 200
# Size of one packet of the local socket.
LOCAL_PACKET_BYTES = 64 * 1024
# Frames in one packet.
MAX_FRAMES = 32
# Descriptions that a daemon keeps for a session, the latest ones.
MAX_DESCRIPTIONS = 1024
# Ids of shared buffers from here on are chosen by the client.
FIRST_CLIENT_BUFFER_ID = 1 << 63

# Suffix of the socket beside a daemon's Unix socket that sends each client a ticket with its identity.
TICKET_SUFFIX = ".who"
TICKET_BYTES = 32
