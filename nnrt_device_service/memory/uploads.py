"""Uploads of constants, and the thread that digests them as they arrive."""

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
from nnrt_hdi.mapped_files import drop_pages

Bytes = NDArray[np.uint8]

# Size of the pieces in which uploads are digested.
_PIECE_BYTES = 8 << 20


@dataclass(slots=True, eq=False)
class Upload:
    """Constant of which `received` bytes have arrived, in order."""

    data: Bytes
    received: int = 0
    users: int = 0
    # Whether the call that sent the latest bytes is still under way.
    is_being_written: bool = True
    # Whether a call is copying bytes into it, without the pool's lock.
    is_being_copied: bool = False
    is_dropped: bool = False
    # State of the client's file and offset of the first byte in it, if all bytes came from there, else None.
    origin: Hashable = None
    _digest: Any = field(default_factory=hashlib.sha256)
    _digested: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_complete(self) -> bool:
        return self.received == self.data.size

    @property
    def may_be_replaced(self) -> bool:
        return not self.is_complete and not self.is_being_copied

    @property
    def is_digested(self) -> bool:
        return self._digested == self.received

    def digest_more(self) -> None:
        """Digest at most one piece of the bytes that have arrived in the daemon's own memory. Any thread may call."""
        with self._lock:
            arrived = self.data[self._digested : self.received][:_PIECE_BYTES]
            self._digest.update(arrived)
            self._digested += arrived.size
        drop_pages([arrived])

    def digest(self) -> bytes:
        """Return the SHA-256 of the bytes that have arrived."""
        while not self.is_digested:
            self.digest_more()
        digest: bytes = self._digest.digest()
        return digest


class Digester:
    """Digester of a session's uploads, in order, in a thread that runs while bytes are left to digest."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._undigested: deque[Upload] = deque()

    def follow(self, upload: Upload) -> None:
        """Let the thread digest the bytes that have arrived; without a thread `Upload.digest` does all of it later."""
        with self._lock:
            if upload in self._undigested:
                return
            self._undigested.append(upload)
            is_first = len(self._undigested) == 1
        if is_first:
            try:
                self._threads.run(self._digest)
            except OutOfMemory:
                with self._lock:
                    self._undigested.clear()

    def _digest(self) -> None:
        while (upload := self._next_undigested()) is not None:
            upload.digest_more()

    def _next_undigested(self) -> Upload | None:
        with self._lock:
            while self._undigested and (self._undigested[0].is_digested or self._undigested[0].is_dropped):
                self._undigested.popleft()
            return self._undigested[0] if self._undigested else None
