"""Contents of a model store for people: lists and removals."""

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.files.store_directory import Entry, StoreDirectory
from nnrt_hdi.tensor import TensorSpec


def describe(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON. If its manifest can't be read, device and tensors are missing."""
    row: dict[str, Any] = {
        "key": entry.key,
        "size_bytes": entry.size_bytes,
        "last_use": datetime.fromtimestamp(entry.last_use_ns / 1e9, timezone.utc).isoformat(),
        "damage": "",
    }
    try:
        compiled = entry.without_parts()
    except (OSError, InvalidFile) as error:
        return row | {"damage": str(error)}
    return row | {
        "backend": f"{compiled.target.backend} {compiled.target.backend_version}",
        "device": compiled.target.device,
        "inputs": [_shown(spec) for spec in compiled.inputs],
        "outputs": [_shown(spec) for spec in compiled.outputs],
    }


def used_bytes(entries: Sequence[Entry]) -> int:
    """Return the bytes of models on the disk; shared parts count once."""
    parts = {sha256: size for entry in entries for sha256, size in entry.parts.items()}
    return sum(entry.file_bytes for entry in entries) + sum(parts.values())


def remove(directory: StoreDirectory, entries: Sequence[Entry], *, are_damaged: bool = False) -> tuple[int, int]:
    """Remove models, and parts that no other model has or that are damaged.

    Returns:
        The number of models removed, and their bytes.

    Raises:
        OSError: A file can't be removed.
    """
    with directory.locked():
        before = used_bytes(directory.entries())
        removed = sum(entry.remove() for entry in entries)  # Entries that were evicted meanwhile don't count.
        if are_damaged:
            for entry in entries:
                entry.remove_damaged_parts()
        directory.remove_unused_parts()
        return removed, before - used_bytes(directory.entries())


def _shown(spec: TensorSpec) -> str:
    return f"{spec.name}: {spec}" if spec.name else str(spec)
