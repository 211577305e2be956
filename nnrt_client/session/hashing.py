"""SHA-256 of many pieces at once, by several threads: while hashlib hashes a large piece, other threads run."""

import os
from collections.abc import Sequence
from functools import partial

from nnrt_client.session.errands import start_in_worker
from nnrt_client.session.latch import Latch
from nnrt_hdi.mapped_files import sha256_of

# Fewer bytes aren't worth the start of a thread.
_LEAST_BYTES = 4 << 20
_MOST_THREADS = 4


def sha256_of_each(parts: Sequence[Sequence[memoryview]]) -> list[bytes]:
    """Return the SHA-256 of each part, which consists of pieces. Raise InvalidFile as `reading` does."""
    digests = [b""] * len(parts)
    left = iter(range(len(parts)))

    def work() -> None:
        for index in left:  # Each index goes to one thread.
            digests[index] = sha256_of(*parts[index])

    def help_out(done: Latch) -> None:
        try:
            work()
        finally:
            done.set()

    helpers: list[Latch] = []
    if sum(piece.nbytes for pieces in parts for piece in pieces) >= _LEAST_BYTES:
        for _ in range(min(os.cpu_count() or 1, _MOST_THREADS, len(parts)) - 1):
            done = Latch()
            if start_in_worker(partial(help_out, done)):
                helpers.append(done)
    work()
    for done in helpers:
        done.wait()
    # A helper that had no memory has left some out.
    return [digest or sha256_of(*pieces) for digest, pieces in zip(digests, parts, strict=True)]
