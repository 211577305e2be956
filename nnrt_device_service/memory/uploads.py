"""Constants on their way, and the thread that digests them as they arrive."""

import hashlib
import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_device_service.host.threads import Threads
from nnrt_hdi.errors import OutOfMemory

Bytes = NDArray[np.uint8]

# What is digested at a time.
_PIECE_BYTES = 8 << 20


@dataclass(slots=True, eq=False)
class Upload:
    """Bytes of a constant as far as they have come."""

    data: Bytes
    received: int = 0
    users: int = 0
    # Whether the call that brought the last bytes still goes on.
    is_being_written: bool = True
    # Whether bytes are being copied into it, which happens without the pool's lock.
    is_being_taken: bool = False
    is_dropped: bool = False
    # Where the first byte lies in a file in a known state, if all have come from there.
    origin: Hashable = None
    _digest: Any = field(default_factory=hashlib.sha256)
    _digested: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_complete(self) -> bool:
        return self.received == self.data.size

    @property
    def may_be_replaced(self) -> bool:
        return not self.is_complete and not self.is_being_taken

    @property
    def is_digested(self) -> bool:
        return self._digested == self.received

    def digest_more(self) -> None:
        """Digest what has arrived, not what the client could change meanwhile; at most a piece of it. Any thread."""
        with self._lock:
            arrived = self.data[self._digested : self.received][:_PIECE_BYTES]
            self._digest.update(arrived)
            self._digested += arrived.size

    def digest(self) -> bytes:
        """SHA-256 of what has arrived."""
        while not self.is_digested:
            self.digest_more()
        digest: bytes = self._digest.digest()
        return digest


class Digester:
    """Digests uploads of a session in one thread, the first first, which is there while anything is behind."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._behind: deque[Upload] = deque()

    def follow(self, upload: Upload) -> None:
        """Have a thread digest what arrives. Where none can be started, whoever checks the constant does it."""
        with self._lock:
            if upload in self._behind:
                return
            self._behind.append(upload)
            is_first = len(self._behind) == 1
        if is_first:
            try:
                self._threads.run(self._digest)
            except OutOfMemory:
                with self._lock:
                    self._behind.clear()

    def _digest(self) -> None:
        while (upload := self._next_behind()) is not None:
            upload.digest_more()

    def _next_behind(self) -> Upload | None:
        with self._lock:
            while self._behind and (self._behind[0].is_digested or self._behind[0].is_dropped):
                self._behind.popleft()
            return self._behind[0] if self._behind else None
