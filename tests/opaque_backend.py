"""Backend whose memory is reachable through handles only. It computes with the reference backend."""

import builtins
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from nnrt_backend_reference import create as create_reference
from wrapping import Progress, WrappedBackend, WrappedModel, outcome_of

from nnrt_hdi.backend import (
    Backend,
    Cancellation,
    DeviceInfo,
    ModelConfig,
    PreparedModel,
    RunEnd,
    StartableModel,
)
from nnrt_hdi.device_buffers import DeviceBuffer, DeviceRegion
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array

# Extension configs of models that take arrays only, and of models with asynchronous runs.
ARRAYS_ONLY, STARTED = "arrays_only", "started"
# Names of files in the backend's folder.
JOURNAL, FAULT, GATE = "journal", "fault", "gate"

Tensor = Array | DeviceRegion


class _Chip:
    """The device's memory, and a journal of its operations."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._journal = os.open(folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lock = threading.Lock()
        self._limit_bytes = limit_bytes
        self.held_bytes = 0

    def note(self, *words: object) -> None:
        """Write a line into the journal."""
        os.write(self._journal, (" ".join(map(str, words)) + "\n").encode())

    def act(self, what: str, size_bytes: int = 0) -> None:
        """Write an operation into the journal, or fail if the file `fault` names it.

        The file may add "with" and the exception to raise.
        """
        self.note(what, size_bytes)
        fault = self._folder / FAULT
        said = fault.read_text() if fault.exists() else ""
        failing, _, kind = said.partition(" with ")
        if failing == what:
            raise getattr(builtins, kind or "RuntimeError")(f"the chip can't {what}")
        if said == f"hang in {what}":
            threading.Event().wait()

    def take(self, size_bytes: int) -> None:
        with self._lock:
            if self.held_bytes + size_bytes > self._limit_bytes:
                raise OutOfMemory(f"the chip has {self._limit_bytes} bytes; {self.held_bytes} are used")
            self.held_bytes += size_bytes

    def wait(self) -> None:
        """Keep a run on the device while the gate is shut."""
        gate = self._folder / GATE
        if gate.exists():
            self.note("waiting", 0)
            gate.read_bytes()

    def close(self) -> None:
        self.note("closed", self.held_bytes)
        os.close(self._journal)


class _Buffer(DeviceBuffer):
    def __init__(self, chip: _Chip, size_bytes: int) -> None:
        chip.take(size_bytes)
        self.size_bytes = size_bytes
        self._chip = chip
        self._bytes: bytearray | None = bytearray(size_bytes)

    @property
    def hidden(self) -> memoryview:
        """The bytes, which only the device can access."""
        if self._bytes is None:
            self._chip.note("freed memory was used", 0)
            raise RuntimeError("the buffer is closed")
        return memoryview(self._bytes)

    def read(self, offset: int, target: memoryview) -> None:
        self._chip.act("read", target.nbytes)
        target[:] = self.hidden[offset : offset + target.nbytes]

    def write(self, offset: int, data: memoryview) -> None:
        self._chip.act("write", data.nbytes)
        self.hidden[offset : offset + data.nbytes] = data

    def close(self) -> None:
        size_bytes, self._bytes = self.hidden.nbytes, None
        self._chip.take(-size_bytes)
        self._chip.act("free", size_bytes)


def _hidden(region: DeviceRegion) -> Array:
    assert isinstance(region.buffer, _Buffer)
    array: Array = np.ndarray(region.shape, region.dtype, region.buffer.hidden, region.offset)
    return array


class _Model(WrappedModel):
    def __init__(self, chip: _Chip, right: PreparedModel) -> None:
        super().__init__(right)
        self._chip = chip

    def run(
        self, inputs: Sequence[Tensor], cancellation: Cancellation, outputs: Sequence[Tensor | None] = ()
    ) -> list[Any]:
        self._chip.act("run")
        self._chip.wait()
        cancellation.check()
        return self.right.run(inputs, cancellation, outputs)  # type: ignore[arg-type]  # Arrays, here.

    def close(self) -> None:
        self._chip.act("close")
        super().close()


class _OpaqueModel(_Model):
    """Model that computes on tensors in the device's memory."""

    def __init__(self, chip: _Chip, right: PreparedModel) -> None:
        super().__init__(chip, right)
        self.takes_device_buffers = True

    def run(
        self, inputs: Sequence[Tensor], cancellation: Cancellation, outputs: Sequence[Tensor | None] = ()
    ) -> list[Any]:
        given = [_seen(tensor, outputs) for tensor in inputs]
        targets = [_hidden(target) if isinstance(target, DeviceRegion) else target for target in outputs]
        results = super().run(given, cancellation, targets)
        if not outputs:
            return [result.copy() for result in results]  # The host's arrays don't share the device's memory.
        for index, target in enumerate(outputs):
            if isinstance(target, DeviceRegion):  # The reference backend has written it there.
                results[index] = target
            elif target is None:
                results[index] = results[index].copy()
        return results

    def sizes(self, inputs: Sequence[Tensor]) -> Sizes:
        return super().sizes([_seen(tensor) for tensor in inputs])


class _StartedModel(StartableModel, WrappedModel):
    """Model that runs another model in its own threads."""

    def __init__(self, right: _Model) -> None:
        super().__init__(right)
        self._model = right
        self._threads = ThreadPoolExecutor(4)

    def start(
        self,
        inputs: Sequence[Tensor],
        cancellation: Cancellation,
        outputs: Sequence[Tensor | None],
        on_end: Callable[[RunEnd], None],
    ) -> None:
        run = partial(self._model.run, inputs, cancellation, outputs)
        self._threads.submit(lambda: on_end(outcome_of(run)))

    def close(self) -> None:
        self._threads.shutdown()
        super().close()


def _seen(tensor: Tensor, outputs: Sequence[Tensor | None] = ()) -> Array:
    """Return an input as the device sees it: as a copy if an output overlaps it."""
    if not isinstance(tensor, DeviceRegion):
        return tensor
    array = _hidden(tensor)
    if any(isinstance(output, DeviceRegion) and tensor.overlaps(output) for output in outputs):
        array = array.copy()
    array.flags.writeable = False
    return array


class _OpaqueBackend(WrappedBackend):
    def __init__(self, options: Mapping[str, str]) -> None:
        """Create the backend with the options `folder`, of the journal, and `limit`, the memory's size in bytes."""
        super().__init__(create_reference({}))
        self._chip = _Chip(Path(options["folder"]), int(options.get("limit", 1 << 30)))

    def describe(self) -> DeviceInfo:
        return replace(super().describe(), device_name="opaque", vendor_name="test", backend_name="opaque")

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        extensions = dict(config.extensions)
        kind = _Model if extensions.pop(ARRAYS_ONLY, None) is not None else _OpaqueModel
        is_started = extensions.pop(STARTED, None) is not None
        model = kind(self._chip, self.right.prepare(graph, replace(config, extensions=extensions), progress))
        return _StartedModel(model) if is_started else model

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        return _OpaqueModel(self._chip, self.right.restore(parts, config))

    def allocate(self, size_bytes: int) -> DeviceBuffer:
        self._chip.act("allocate", size_bytes)
        return _Buffer(self._chip, size_bytes)

    def close(self) -> None:
        super().close()
        self._chip.close()


def create(options: Mapping[str, str]) -> Backend:
    return _OpaqueBackend(options)
