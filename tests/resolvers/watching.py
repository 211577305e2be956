"""What a resolver tells, kept for a test to wait for."""

from collections.abc import Iterator
from contextlib import contextmanager

from waiting import until

from nnrt_client import Settings
from nnrt_client.resolvers.names import resolver_for
from nnrt_hdi.errors import ConnectionFailed


class Told:
    """All that was told so far."""

    def __init__(self) -> None:
        self.lists: list[tuple[str, ...]] = []
        self.failures: list[ConnectionFailed] = []

    def wait_until_listed(self, address: str) -> None:
        """Wait until this is one of the addresses. Others may be those of other tests."""
        until(lambda: self.lists and address in self.lists[-1], lambda: self.lists)

    def wait_until_absent(self, address: str) -> None:
        """Wait until this is none of the addresses."""
        until(lambda: self.lists and address not in self.lists[-1], lambda: self.lists)

    def wait_for(self, *addresses: str) -> None:
        """Wait until these are the addresses."""
        until(lambda: self.lists[-1:] == [addresses], lambda: self.lists)


@contextmanager
def watched(name: str, settings: Settings | None = None) -> Iterator[Told]:
    told = Told()
    with resolver_for(name, settings or Settings()) as resolver:
        resolver.watch(told.lists.append, told.failures.append)
        yield told
