"""Results of DNS look-ups: IP addresses and ports."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address

Target = tuple[IPv4Address | IPv6Address, int]
# Families of IP, in the order of preference.
Families = tuple[int, ...]


def prefer_family(ips: Iterable[IPv4Address | IPv6Address], families: Families) -> list[IPv4Address | IPv6Address]:
    """Return the addresses of the first family in `families` that has any."""
    of_family = {family: [ip for ip in ips if ip.version == family] for family in families}
    return next(filter(None, of_family.values()), [])


def order_addresses(targets: Iterable[Target]) -> tuple[str, ...]:
    """Return sorted addresses, because name servers rotate the order of their answers."""
    ordered = sorted(set(targets), key=lambda target: (target[0].version, target))
    return tuple(f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}" for ip, port in ordered)
