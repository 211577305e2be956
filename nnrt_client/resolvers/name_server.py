"""Resolver that asks name servers by dnspython: for SRV records, and for look-ups at a given name server."""

import time
from ipaddress import ip_address
from itertools import islice
from typing import Any

import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver

from nnrt_client.resolvers.resolver import PollingResolver
from nnrt_client.resolvers.targets import Families, Target, order_addresses, prefer_family
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter

# Bounds of the pause before the next look-up, which otherwise is the answer's time to live.
_LEAST_S, _MOST_S = 1.0, 30.0
_KINDS = {4: dns.rdatatype.A, 6: dns.rdatatype.AAAA}
# Limit of the hosts of one service.
_MOST_HOSTS = 256


class NameServerResolver(PollingResolver):
    """Resolver of a host, or, with port 0, of a service's SRV records. It asks again when an answer expires."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        families: Families,
        server: tuple[str, int] | None,
        every_s: float | None,
        timeout_s: float,
    ) -> None:
        """Create a resolver that asks `server`, or the servers of /etc/resolv.conf. Raise InvalidParameter."""
        super().__init__(name, (every_s or _MOST_S) + timeout_s)
        try:
            self._host = dns.name.from_text(host)
            self._resolver = dns.resolver.Resolver(configure=server is None)
        except dns.exception.DNSException as error:
            raise InvalidParameter(f"it can't be looked up: {error}", place=name) from error
        if server is not None:
            self._resolver.nameservers, self._resolver.port = [server[0]], server[1]
        self._timeout_s = timeout_s
        self._port = port
        self._families = families
        self._every_s = every_s

    def _ask(self) -> tuple[tuple[str, ...], float]:
        self._holds_s = _MOST_S
        self._deadline = time.monotonic() + self._timeout_s
        try:
            targets = self._targets_of(self._host, self._port) if self._port else self._targets_of_service()
        except dns.exception.DNSException as error:
            raise ConnectionFailed(f"the look-up failed: {error}", place=self.name) from error
        holds_s = max(self._holds_s, _LEAST_S) if targets else _LEAST_S
        return order_addresses(targets), self._every_s or holds_s

    def _targets_of(self, host: dns.name.Name, port: int) -> set[Target]:
        kinds = (_KINDS[family] for family in self._families)
        ips = [ip_address(record.address) for kind in kinds for record in self._records(host, kind)]
        return {(ip, port) for ip in prefer_family(ips, self._families)}

    def _targets_of_service(self) -> set[Target]:
        services = self._records(self._host, dns.rdatatype.SRV)
        offered = (record for record in services if record.target != dns.name.root)  # The root means no service.
        return {
            target for record in islice(offered, _MOST_HOSTS) for target in self._targets_of(record.target, record.port)
        }

    def _records(self, host: dns.name.Name, kind: dns.rdatatype.RdataType) -> list[Any]:
        """Look up the records of a host, of which there may be none, and record how long they are valid."""
        remaining_s = max(self._deadline - time.monotonic(), 0.0)
        try:
            answer = self._resolver.resolve(host, kind, raise_on_no_answer=False, lifetime=remaining_s)
        except dns.resolver.NXDOMAIN:
            return []
        if answer.rrset is None:
            return []
        self._holds_s = min(self._holds_s, answer.rrset.ttl)
        return list(answer.rrset)
