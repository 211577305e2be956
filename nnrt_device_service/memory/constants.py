"""Constants of one session: uploaded once, checked against their digests, and shared by the session's models."""

import math
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from nnrt_device_service.host.threads import Threads
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.memory.shared_files import FileRegion, KnownParts
from nnrt_device_service.memory.uploads import Bytes, Digester, Upload
from nnrt_hdi.errors import InvalidFile, InvalidParameter
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.part import SHA256_BYTES

# Constants of at least this size are digested by a thread if they are checked later.
_LEAST_LATER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class MissingConstants:
    """Constants of a graph that the client must still upload: the number of bytes received so far, by digest."""

    received_bytes: Mapping[bytes, int]


class ConstantPool:
    """Constants that a session has uploaded.

    Constants that no model uses stay until their memory is needed, so that the client can prepare the same model again
    without an upload. The bytes of a broken upload stay as well, so that the client can resume it.
    """

    def __init__(self, budget: MemoryBudget, directory: str = "") -> None:
        """Make a pool, which keeps large constants in files of the directory, if there is one."""
        self._budget = budget
        self._directory = directory
        # Never reserve from the budget under this lock: the budget may call `_drop_unused` of any session.
        self._lock = threading.Lock()
        self._uploads: dict[bytes, Upload] = {}
        # Uploads that were dropped while models used them, by digest.
        self._dropped_in_use: list[tuple[bytes, Upload]] = []
        # Digests of constants that `write` accepts unchecked; see `check_later`.
        self._checked_later: Collection[bytes] = ()
        self._digester: Digester | None = None
        self._known = KnownParts()
        # When bytes came last, of time.monotonic().
        self.written_at = -math.inf
        budget.on_shortage(self._drop_unused)

    def write(self, sha256: bytes, size_bytes: int, offset: int, data: bytes | memoryview | FileRegion) -> bool:
        """Append the next bytes of a constant and return whether it is complete.

        The upload counts as under way until `pause`. Bytes at offset 0 with another `size_bytes` than before begin the
        upload anew. Raises InvalidParameter for bytes that don't follow the received ones, InvalidFile for a complete
        constant with another digest (it is dropped), OutOfMemory beyond the session's budget, and what
        `SharedFile.read` raises.
        """
        self.written_at = time.monotonic()
        self._require_begun(sha256, size_bytes, offset)
        upload = self._claim(sha256, size_bytes, offset, len(data))
        try:
            _take(upload, offset, data)
        finally:
            upload.is_being_copied = False
        if sha256 in self._checked_later and size_bytes >= _LEAST_LATER_BYTES:
            if self._digester is not None and not self._is_known(sha256, upload):
                self._digester.follow(upload)
            return upload.is_complete
        digest = upload.digest()
        if upload.is_complete and digest != sha256:
            with self._lock:
                self._refuse(sha256, upload)
        return upload.is_complete

    def _require_begun(self, sha256: bytes, size_bytes: int, offset: int) -> None:
        """Make sure that there is an upload for a constant.

        Its memory is reserved without the lock: the budget may reclaim memory of any session.
        """
        with self._lock:
            upload = self._uploads.get(sha256)
            if upload and upload.data.size != size_bytes and offset == 0 and upload.may_be_replaced:
                self._drop(sha256)
                upload = None
            if upload is not None:
                upload.is_being_written = True
                return
        if len(sha256) != SHA256_BYTES:
            raise InvalidParameter(f"a constant's digest has {len(sha256)} bytes; a SHA-256 has {SHA256_BYTES}")
        begun = Upload(self._budget.allocate(size_bytes, self._directory))
        with self._lock:
            is_first = self._uploads.setdefault(sha256, begun) is begun
        if not is_first:  # Another call has begun the same constant meanwhile.
            self._budget.release(size_bytes)

    def _claim(self, sha256: bytes, size_bytes: int, offset: int, length: int) -> Upload:
        """Return the upload, which only this call may write now; raise InvalidParameter for bytes that aren't next."""
        place = f"constant {sha256.hex()[:12]}"
        with self._lock:
            upload = self._uploads.get(sha256)
            if upload is None:
                raise InvalidParameter("it was dropped while its bytes came; send it again", place=place)
            upload.is_being_written = True
            if size_bytes != upload.data.size:
                raise InvalidParameter(f"its size is {size_bytes}, before it was {upload.data.size}", place=place)
            if upload.is_being_copied:
                raise InvalidParameter("another call writes it; wait for the end of that call", place=place)
            if offset != upload.received or offset + length > size_bytes:
                raise InvalidParameter(
                    f"{length} bytes at {offset} do not follow the {upload.received} of {size_bytes} received",
                    place=place,
                )
            upload.is_being_copied = True
            return upload

    def check_later(self, digests: Collection[bytes], threads: Threads, known: KnownParts) -> None:
        """Accept these constants, and no others, without waiting for the check of their digests.

        A thread digests them meanwhile, except those read from parts of files in `known`. A caller that uses constants
        unchecked must call `require_checked` later.
        """
        with self._lock:
            self._checked_later, self._known = frozenset(digests), known
            self._digester = self._digester or Digester(threads)

    def require_checked(self, digests: Iterable[bytes], *, by_files: bool = False) -> None:
        """Check constants that the caller has acquired; drop one with another digest and raise InvalidFile.

        With `by_files`, constants read from a known part of an unchanged file are not checked again.
        """
        for sha256 in digests:
            with self._lock:
                upload = self._uploads.get(sha256)
            if upload is not None:
                if by_files and self._is_known(sha256, upload):
                    continue
                upload.digest()
            with self._lock:
                if any(dropped == sha256 for dropped, _ in self._dropped_in_use):
                    self._refuse(sha256, None)  # The caller holds bytes that were wrong; others have come since.
                self._check(sha256)
                if upload is not None and upload.origin is not None:
                    self._known.add((upload.origin, upload.data.size, sha256))

    def _is_known(self, sha256: bytes, upload: Upload) -> bool:
        return upload.origin is not None and (upload.origin, upload.data.size, sha256) in self._known

    def _check(self, sha256: bytes) -> None:
        upload = self._uploads.get(sha256)
        if upload is None or upload.digest() != sha256:
            self._refuse(sha256, upload)

    def _refuse(self, sha256: bytes, upload: Upload | None) -> NoReturn:
        if upload is not None and self._uploads.get(sha256) is upload:
            self._drop(sha256)
        raise InvalidFile(
            "the bytes received have another SHA-256; send them again", place=f"constant {sha256.hex()[:12]}"
        )

    @property
    def held_bytes(self) -> int:
        return sum(upload.data.size for upload in list(self._uploads.values()))

    def pause(self, digests: Iterable[bytes]) -> None:
        """Note that the call that wrote these constants has ended, so incomplete ones may be dropped for others."""
        with self._lock:
            for sha256 in digests:
                if upload := self._uploads.get(sha256):
                    upload.is_being_written = False

    def acquire(self, graph: Graph) -> Graph | MissingConstants:
        """Return the graph with the data of all its constants, kept until `release`, or the missing constants."""
        found = self.acquire_all(list(_by_digest(graph)))
        if isinstance(found, MissingConstants):
            return found
        constants = {
            index: constant if constant.data is not None else _typed(constant, found[constant.sha256], graph, index)
            for index, constant in graph.constants.items()
        }
        return graph.with_constants(constants)

    def acquire_all(
        self, constants: Collection[Constant], *, is_checked: bool = True
    ) -> Mapping[bytes, Bytes] | MissingConstants:
        """Return the read-only bytes of constants by digest, kept until `release`, or the missing constants.

        Raises InvalidParameter if a constant's size is not that of its upload, and, if `is_checked`, InvalidFile for
        one with another digest. A caller that wants them unchecked must call `require_checked` before it uses them.
        """
        with self._lock:
            missing = {}
            for constant in constants:
                upload = self._uploads.get(constant.sha256)
                if upload is None or not upload.is_complete:
                    goes_on = upload is not None and upload.data.size == constant.size_bytes
                    missing[constant.sha256] = upload.received if upload and goes_on else 0
                else:
                    _require_size(upload, constant)
            if missing:
                return MissingConstants(missing)
            if is_checked:
                for constant in constants:
                    self._check(constant.sha256)
            for constant in constants:
                self._uploads[constant.sha256].users += 1
            return {constant.sha256: _read_only(self._uploads[constant.sha256].data) for constant in constants}

    @contextmanager
    def keeping(self, constants: Collection[Constant]) -> Iterator[None]:
        """Keep constants during the block, if all of them are complete."""
        found = self.acquire_all(constants, is_checked=False)
        try:
            yield
        finally:
            if not isinstance(found, MissingConstants):
                self.release(constant.sha256 for constant in constants)

    def release(self, digests: Iterable[bytes]) -> None:
        """Release constants that a model has used."""
        with self._lock:
            for sha256 in digests:
                left = next((one for one in self._dropped_in_use if one[0] == sha256), None)
                upload = left[1] if left is not None else self._uploads.get(sha256)
                if upload is not None:
                    upload.users -= 1
                if left is not None and not left[1].users:
                    self._dropped_in_use.remove(left)
                    self._budget.release(left[1].data.size)

    def drop(self, digests: Iterable[bytes]) -> None:
        """Drop complete constants that no model uses, because the store has what was made of them."""
        with self._lock:
            for sha256 in digests:
                upload = self._uploads.get(sha256)
                if upload is not None and upload.is_complete and not upload.users:
                    self._drop(sha256)

    def clear(self) -> None:
        """Forget all constants; models that still run keep the arrays that they use."""
        with self._lock:
            for sha256 in list(self._uploads):
                self._drop(sha256)

    def _drop_unused(self) -> bool:
        """Drop the oldest constant that no model uses, else the oldest broken upload; return False if there is none."""
        with self._lock:
            unused = [key for key, upload in self._uploads.items() if upload.is_complete and not upload.users]
            broken = [
                key for key, upload in self._uploads.items() if upload.may_be_replaced and not upload.is_being_written
            ]
            for oldest in (*unused, *broken)[:1]:
                self._drop(oldest)
            return bool(unused or broken)

    def _drop(self, sha256: bytes) -> None:
        upload = self._uploads.pop(sha256)
        upload.is_dropped = True
        if upload.users:  # It counts in the budget until the last model releases it.
            self._dropped_in_use.append((sha256, upload))
        else:
            self._budget.release(upload.data.size)


def _take(upload: Upload, offset: int, data: bytes | memoryview | FileRegion) -> None:
    """Copy the next bytes, which begin at `offset`, into an upload, and note their origin."""
    room, origin = upload.data[offset : offset + len(data)], None
    if isinstance(data, FileRegion):
        state = data.file.state()
        if state is not None and len(data):
            data.file.write_back(state)
        data.file.read(room.data, data.start)
        if state is not None and data.file.state() == state:
            origin = state, data.start - offset
    else:
        room[:] = np.frombuffer(data, np.uint8)
    upload.origin = origin if offset == 0 or origin == upload.origin else None
    upload.received += len(data)


def uploaded_digests(graph: Graph) -> list[bytes]:
    """Return the digests of the constants that don't travel with the graph, one for each constant tensor."""
    return [constant.sha256 for constant in _by_digest(graph)]


def _by_digest(graph: Graph) -> Iterator[Constant]:
    return (constant for constant in graph.constants.values() if constant.data is None)


def _read_only(data: Bytes) -> Bytes:
    view: Bytes = data.view()
    view.flags.writeable = False
    return view


def _typed(constant: Constant, data: Bytes, graph: Graph, index: int) -> Constant:
    spec = graph.tensors[index]
    return replace(constant, data=data.view(spec.numpy_dtype).reshape(spec.shape))


def _require_size(upload: Upload, constant: Constant) -> None:
    if upload.data.size != constant.size_bytes:
        raise InvalidParameter(
            f"constant {constant.sha256.hex()[:12]} is {constant.size_bytes} bytes in the model and"
            f" {upload.data.size} in its upload; they must agree"
        )
