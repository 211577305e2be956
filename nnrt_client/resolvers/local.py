"""Resolver of local:///: the daemons that `nnrt-device up` supervises on this host."""

from pathlib import Path

from nnrt_client.resolvers.names import Name
from nnrt_client.resolvers.resolver import PollingResolver
from nnrt_client.settings import Settings
from nnrt_hdi.files.fleet_directory import fleet_directories, ready_addresses

_EVERY_S = 0.2


class LocalResolver(PollingResolver):
    """Resolver of the ready daemons listed in the files of this host's supervisors; none without a supervisor."""

    if_empty = ": nnrt-device up keeps no daemon on this host; start it, or give an address"

    def __init__(self, name: str, directories: list[Path], every_s: float) -> None:
        super().__init__(name, every_s)
        self._directories = directories
        self._every_s = every_s

    def _ask(self) -> tuple[tuple[str, ...], float]:
        found = (address for directory in self._directories for address in ready_addresses(directory))
        return tuple(found), self._every_s


def create(name: Name, _: Settings) -> LocalResolver:
    """Make the resolver of a name. Raise InvalidParameter for an invalid name."""
    name.allow_options("every")
    if name.authority:
        raise name.error("it names no directory of this host; use local:///, or local:///PATH as for --state-dir")
    directories = [Path("/", name.path)] if name.path else fleet_directories()
    return LocalResolver(name.text, directories, name.seconds("every", _EVERY_S))
