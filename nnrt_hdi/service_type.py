"""Service type of daemons on a link (DNS-SD, RFC 6763)."""

SERVICE_TYPE = "_nnrt._tcp.local."
