"""Ports of TCP, as addresses have them."""

MAX_PORT = 65535


def port_number(text: str) -> int | None:
    """Return the number of a port, 0 to 65535, or None if the text is no such number."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PORT))
    return int(text) if is_number and int(text) <= MAX_PORT else None
