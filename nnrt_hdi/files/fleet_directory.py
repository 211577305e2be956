"""Where the supervisor of a host's daemons writes which there are, and what clients read of it.

The directory has a file daemons/NAME.json for each daemon, replaced as a whole whenever something changes. Clients know
two of its entries: `state`, which is "ready" while the daemon takes work, and `addresses`.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

RECORDS = "daemons"
READY = "ready"
# Whatever somebody has put there.
_MOST_RECORDS, _MOST_BYTES = 1024, 1 << 20


def fleet_directories() -> list[Path]:
    """Where a supervisor has it by default: this user's own, and the host's."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    return [*([Path(own, "nnrt")] if own else []), Path("/run/nnrt")]


def ready_addresses(directory: Path) -> Iterator[str]:
    """The addresses of the daemons that take work. Where this user may read nothing there are none."""
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
