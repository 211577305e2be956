"""Directory in which a host's supervisor lists its daemons for clients.

It has a file daemons/NAME.json for each daemon, replaced as a whole on every change. Clients read two entries: `state`,
which is "ready" while the daemon takes work, and `addresses`.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

RECORDS = "daemons"
READY = "ready"
# Limits, whatever somebody has put there.
_MOST_RECORDS, _MOST_BYTES = 1024, 1 << 20


def fleet_directories() -> list[Path]:
    """Return the default directories: this user's and the host's."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    return [*([Path(own, "nnrt")] if own else []), Path("/run/nnrt")]


def ready_addresses(directory: Path) -> Iterator[str]:
    """Yield the addresses of daemons that take work; none if this user may not read the directory."""
    with suppress(OSError):
        for path in sorted(islice((directory / RECORDS).glob("*.json"), _MOST_RECORDS)):
            yield from _addresses(path)


def _addresses(path: Path) -> list[str]:
    with suppress(OSError, ValueError, RecursionError), path.open("rb") as file:
        record = json.loads(file.read(_MOST_BYTES))
        if isinstance(record, dict) and record.get("state") == READY:
            addresses = record.get("addresses")
            return [one for one in addresses if isinstance(one, str)] if isinstance(addresses, list) else []
    return []
