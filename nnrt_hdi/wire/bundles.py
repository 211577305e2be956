"""Bundles: several planned runs in one packet of the local socket, and several replies in one.

protos/README.md describes the layout, docs/adr/0015-runs-as-plans.md has the reasons.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from struct import Struct, pack

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.limits import MAX_BUNDLED_RUNS

# In Welcome.features of a daemon that takes bundles.
FEATURE = "bundles"
# With what a bundle begins, as `wire.plans` has it.
REQUESTS_MARK = 0x0300
REPLIES_MARK = 0x0400

# Mark, and how many parts there are. The length of each follows.
_HEAD = Struct("<II")
_LENGTHS = [Struct(f"<{count}I") for count in range(MAX_BUNDLED_RUNS + 1)]
# What `bundled` adds to the parts: at most `HEAD_BYTES`, and so much for each of them.
HEAD_BYTES = _HEAD.size
LENGTH_BYTES = _LENGTHS[1].size


def bundled(mark: int, parts: Sequence[bytes]) -> bytes:
    """Parts as one packet."""
    count = len(parts)
    return b"".join((pack(f"<{2 + count}I", mark, count, *map(len, parts)), *parts))


def parts_of(mark: int, packet: bytes) -> list[bytes]:
    """The parts of a bundle; what they are is not looked at. Raises InvalidParameter for what is no bundle."""
    if len(packet) < HEAD_BYTES:
        raise InvalidParameter(f"a bundle has {len(packet)} bytes; its head has {HEAD_BYTES}")
    found, count = _HEAD.unpack_from(packet)
    if found != mark:
        raise InvalidParameter(f"a bundle begins with {found:#x}; send {mark:#x}")
    begin = HEAD_BYTES + LENGTH_BYTES * count
    if not 0 < count <= MAX_BUNDLED_RUNS or begin > len(packet):
        raise InvalidParameter(
            f"a bundle of {len(packet)} bytes says that it has {count} parts; send 1 to {MAX_BUNDLED_RUNS}"
        )
    ends = list(accumulate(_LENGTHS[count].unpack_from(packet, HEAD_BYTES), initial=begin))
    if ends[-1] != len(packet):
        raise InvalidParameter(f"a bundle has {len(packet)} bytes; its parts end at {ends[-1]}")
    return [packet[at:end] for at, end in pairwise(ends)]
