"""Placement: the order in which a pool chooses devices for a model's replicas."""

import hashlib
import math
from collections.abc import Iterable

from nnrt_client.pool.candidate import Candidate

_GIB = 1 << 30


def order_by_preference(candidates: Iterable[Candidate], digest: bytes) -> list[Candidate]:
    """Sort the daemons by preference for a model with this digest.

    All clients get the same order, so that they choose daemons whose stores have the model. It is weighted rendezvous
    hashing (Wang and Ravishankar, "Weighted distributed hash tables", 2009): a device with a longer queue or more used
    memory comes first for fewer models.
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
