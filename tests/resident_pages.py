"""Resident memory of this process' mappings."""

import re
from pathlib import Path

from nnrt_hdi.tensor import Array


def resident_bytes(array: Array) -> int:
    """Return the resident memory of the mapping that an array is in."""
    place = array.ctypes.data
    for entry in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        begin, end = (int(address, 16) for address in entry.split(" ", 1)[0].split("-"))
        if begin <= place < end:
            (size,) = re.findall(r"^Rss: +(\d+) kB", entry, re.MULTILINE)
            return int(size) << 10
    raise LookupError("the array is in no mapping")
