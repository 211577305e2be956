"""What daemons are called among the services of a link (DNS-SD, RFC 6763)."""

SERVICE_TYPE = "_nnrt._tcp.local."
