"""Record of a resolver's notifications, for tests to wait for."""

from collections.abc import Iterator
from contextlib import contextmanager

from waiting import until

from nnrt_client import Settings
from nnrt_client.resolvers.names import resolver_for
from nnrt_hdi.errors import ConnectionFailed


class Notifications:
    """Record of a resolver's notifications."""

    def __init__(self) -> None:
        self.lists: list[tuple[str, ...]] = []
        self.failures: list[ConnectionFailed] = []

    def wait_until_listed(self, address: str) -> None:
        """Wait until the resolver lists this address; others may come from other tests."""
        until(lambda: self.lists and address in self.lists[-1], lambda: self.lists)

    def wait_until_absent(self, address: str) -> None:
        """Wait until the resolver doesn't list this address."""
        until(lambda: self.lists and address not in self.lists[-1], lambda: self.lists)

    def wait_for(self, *addresses: str) -> None:
        """Wait until the resolver lists exactly these addresses."""
        until(lambda: self.lists[-1:] == [addresses], lambda: self.lists)


@contextmanager
def watched(name: str, settings: Settings | None = None) -> Iterator[Notifications]:
    notifications = Notifications()
    with resolver_for(name, settings or Settings()) as resolver:
        resolver.watch(notifications.lists.append, notifications.failures.append)
        yield notifications
