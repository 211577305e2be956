"""The order in which devices are asked to take a replica of a model."""

import hashlib
import math
from collections.abc import Iterable

from nnrt_client.pool.candidate import Candidate

_GIB = 1 << 30


def in_order(candidates: Iterable[Candidate], digest: bytes) -> list[Candidate]:
    """Order devices for a model: every client comes to the same ones, whose stores have it then.

    This is rendezvous hashing with weights (Wang and Ravishankar, "Weighted distributed hash tables", 2009): a device
    with a longer queue, or less room, comes first for fewer models.
    """
    return sorted(candidates, key=lambda candidate: _distance(candidate, digest))


def _distance(candidate: Candidate, digest: bytes) -> float:
    name = (candidate.name or candidate.address).encode()
    number = int.from_bytes(hashlib.sha256(digest + name).digest()[:7], "big")
    return -math.log((number + 1) / (1 << 56)) / _weight(candidate)


def _weight(candidate: Candidate) -> float:
    if candidate.session is None:
        return 1.0
    state = candidate.session.state
    return 1 / ((1 + state.running + state.queued) * (1 + state.held_bytes / _GIB))
