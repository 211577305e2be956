"""Addresses of TCP and their ports."""

import ipaddress

MAX_PORT = 65535


def port_number(text: str) -> int | None:
    """Return the number of a port, 0 to 65535, or None if the text is no such number."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PORT))
    return int(text) if is_number and int(text) <= MAX_PORT else None


def is_on_this_host(address: str) -> bool:
    """Return whether only processes of this host can reach an address."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
