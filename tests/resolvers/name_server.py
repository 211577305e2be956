"""DNS server on the loopback, whose records a test sets."""

import socket
import threading

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
from typing_extensions import Self

from nnrt_hdi.closable import Closable

_MOST_BYTES = 4096


class NameServer(Closable):
    """DNS server that answers from its records, and with NXDOMAIN for a name without any."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], dns.rrset.RRset] = {}
        # All questions so far.
        self.asked: list[tuple[str, str]] = []
        # Error code with which the server answers every question, or None.
        self.failure: dns.rcode.Rcode | None = None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def say(self, name: str, kind: str, *values: str, ttl: int = 1) -> Self:
        """Set the records of a name; remove them if there are no values."""
        if values:
            self._records[name, kind] = dns.rrset.from_text(f"{name}.", ttl, "IN", kind, *values)
        else:
            self._records.pop((name, kind), None)
        return self

    def close(self) -> None:
        """Stop answering."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            query, client = self._socket.recvfrom(_MOST_BYTES)
            if not query:
                return
            self._socket.sendto(self._reply(dns.message.from_wire(query)).to_wire(), client)

    def _reply(self, query: dns.message.Message) -> dns.message.Message:
        (question,) = query.question
        name, kind = str(question.name).rstrip("."), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        reply = dns.message.make_response(query)
        reply.flags |= dns.flags.AA
        if self.failure is not None:
            reply.set_rcode(self.failure)
        elif found := self._records.get((name, kind)):
            reply.answer.append(found)
        elif name not in {known for known, _ in self._records}:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        return reply
