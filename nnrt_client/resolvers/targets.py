"""What a look-up of names finds: IP addresses and ports."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address

Target = tuple[IPv4Address | IPv6Address, int]
# Of IP, in the order of preference.
Families = tuple[int, ...]


def preferred(ips: Iterable[IPv4Address | IPv6Address], families: Families) -> list[IPv4Address | IPv6Address]:
    """Those of the first of the families that has any."""
    of_family = {family: [ip for ip in ips if ip.version == family] for family in families}
    return next(filter(None, of_family.values()), [])


def in_order(targets: Iterable[Target]) -> tuple[str, ...]:
    """Addresses, in an order that isn't the answer's: name servers turn that about."""
    ordered = sorted(set(targets), key=lambda target: (target[0].version, target))
    return tuple(f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}" for ip, port in ordered)
