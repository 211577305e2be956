"""Parts of an isolated model in shared memory, of which each of its processes makes the model."""

import fcntl
import logging
import mmap
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from nnrt_device_service.isolation.channel import ProcessEnded, Progress
from nnrt_device_service.isolation.child import Origins
from nnrt_device_service.isolation.messages import MOST_TEXT
from nnrt_device_service.isolation.process import ModelProcess, ending
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import DimRange
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory, TimedOut, Unsupported
from nnrt_hdi.files.graph_file import read_end_spec
from nnrt_hdi.forking import ForkServer, aligned, packed_request
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import TensorSpec

_log = logging.getLogger(__name__)

# Whose constants only Linux has.
_SEALS = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_WRITE", "F_SEAL_SEAL")
# Bytes written at a time, for a part may be read from a file.
_STEP_BYTES = 1 << 22
# Bytes of a process besides its model: Python's objects that it has changed, and channels.
_PROCESS_BYTES = 1 << 24
_MOST_BYTES = 1 << 62
_MOST_NOTES = 16
_SIZES_S = 10.0


@dataclass(frozen=True, slots=True)
class Description:
    """Model, as its process describes it."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    # Bytes that the process takes besides the model.
    kept_bytes: int
    # Bytes that it takes on the device; None: it lies in memory of the host.
    device_bytes: int | None
    # None if the model doesn't say which shapes it takes.
    ranges: Sequence[DimRange] | None


class Source(Closable):
    """Source of a model's processes."""

    def __init__(
        self,
        origins: Origins,
        parts: Sequence[Part],
        server: ForkServer,
        budget: MemoryBudget,
        device_name: str,
        settings: Settings,
    ) -> None:
        """Copy the parts to shared memory.

        Raises OutOfMemory if the host has nothing left, and what reading the parts raises.
        """
        self._server = server
        self._budget = budget
        self._device_name = device_name
        # Seconds that making the model, or exporting it, may take; 0: no limit.
        self.most_s = settings.max_compile_s
        # Seconds until a process must have said how much a run takes: before the daemon counts as stuck.
        self.sizes_s = min(_SIZES_S, settings.stuck_s / 2 or _SIZES_S)
        # In how many processes making the model has crashed.
        self._crashes = 0
        *offsets, size_bytes = accumulate((aligned(part.size_bytes) for part in parts), initial=0)
        places = [(at, part.size_bytes, part.sha256) for at, part in zip(offsets, parts, strict=True)]
        request = packed_request(replace(origins, parts=places))
        begin = len(request)
        memory = -1
        try:
            memory = os.memfd_create("nnrt-model", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(memory, begin + size_bytes)
            os.pwrite(memory, request, 0)
            for at, part in zip(offsets, parts, strict=True):
                for start in range(0, part.size_bytes, _STEP_BYTES):
                    os.pwrite(memory, part.piece(start, _STEP_BYTES), begin + at + start)
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, sum(getattr(fcntl, name) for name in _SEALS))
            data = memoryview(mmap.mmap(memory, begin + size_bytes, prot=mmap.PROT_READ))[begin:]
        except BaseException as error:
            if memory >= 0:
                os.close(memory)
            if not isinstance(error, OSError):
                raise
            raise OutOfMemory(f"the daemon's host has nothing left for a process: {error.strerror}") from error
        self._memory = memory
        # The parts, of which the daemon needs no other copy.
        self.parts = [Part(data[at : at + size], sha256) for at, size, sha256 in places]

    def make(self, progress: Progress) -> tuple[ModelProcess, Description]:
        """Make the model in a new process.

        Raises:
            Unsupported: The backend crashes on it.
            OperationFailed: The server has ended.
            OutOfMemory: The host has killed the process, or can't start it.
            TimedOut: It takes too long.
            NnrtError: The backend raised it, or `progress`.
        """
        while True:
            process = ModelProcess(self._server, self._memory, self._budget)
            try:
                answer = process.load(self._crashes, in_time(self.most_s, progress))
                return process, _description(answer)
            except ProcessEnded as error:
                status = process.note_end()
                process.close()
                how = str(error) or ending(status)
                if status is None:
                    raise OperationFailed(
                        "the process that starts processes for models has ended, and the daemon's log may say why; try"
                        " it again"
                    ) from error
                if not str(error) and status == -signal.SIGKILL:
                    raise OutOfMemory(
                        "the daemon's host had no process left for it, or has killed that, as it does where memory is"
                        " short; try later"
                    ) from error
                if self._crashes:
                    raise Unsupported(
                        f"{self._device_name} crashes on it ({how}); export it in another way, or have the daemon use"
                        " another version of the device's library"
                    ) from error
                _log.warning("%s crashes on a model (%s), and makes it again with care", self._device_name, how)
                self._crashes += 1
            except BaseException:
                process.close()
                raise

    def close(self) -> None:
        """Release the memory, which lasts while anybody has a view of the parts. Idempotent."""
        memory, self._memory, self.parts = self._memory, -1, []
        if memory >= 0:
            os.close(memory)


def in_time(most_s: float, progress: Progress = lambda fraction: None) -> Progress:
    """Return a function that reports progress, and raises TimedOut after `most_s` seconds; 0: never."""
    began_at = time.monotonic()

    def report(fraction: float) -> None:
        if most_s and time.monotonic() - began_at > most_s:
            raise TimedOut(f"the process of the model has taken {most_s:g} s, the daemon's limit")
        progress(fraction)

    return report


def _description(answer: Any) -> Description:
    """Return what a process says of a model. Raises ProcessEnded if it is wrong."""
    try:
        inputs, outputs, kept_bytes, device_bytes, ranges, notes = answer
        for size_bytes in (kept_bytes, device_bytes or 0):
            if not 0 <= int(size_bytes) <= _MOST_BYTES:
                raise ValueError(f"it takes {size_bytes} bytes")
        for note in notes[:_MOST_NOTES]:
            _log.warning("the process of a model says: %r", str(note)[:MOST_TEXT])
        return Description(
            tuple(map(read_end_spec, inputs)),
            tuple(map(read_end_spec, outputs)),
            _PROCESS_BYTES + int(kept_bytes),
            None if device_bytes is None else int(device_bytes),
            ranges and [DimRange(tuple(map(int, least)), tuple(map(int, most))) for least, most in ranges],
        )
    except (LookupError, TypeError, ValueError, OverflowError, NnrtError) as error:
        raise ProcessEnded(f"its description of the model is wrong: {error!r}") from error
