"""Identity backend with the fault that a model's extension config `fault` names.

The fault "gives KEY" names an invalid output in NONSENSE: a run whose first number is negative returns this output.
With the option `memory` the device returns invalid buffers.
"""

import ctypes
import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import cast

from nonsense import NONSENSE

from nnrt_hdi.backend import (
    Backend,
    Cancellation,
    Capabilities,
    DeviceInfo,
    DimRange,
    ModelConfig,
    PreparedModel,
    Support,
)
from nnrt_hdi.device_buffers import DeviceBuffer
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidFile, InvalidParameter, OperationFailed
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array, TensorSpec

_log = logging.getLogger(__name__)

_GIVES = b"gives "


def _end_serving() -> None:
    """Raise MemoryError in gRPC's serving thread."""
    for thread in threading.enumerate():
        if thread.name.endswith("(_serve)"):
            assert thread.ident is not None
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(MemoryError))


def _hold_python() -> None:
    """Block all other Python threads forever."""
    mutex = ctypes.create_string_buffer(128)  # A zeroed mutex is unlocked.
    library = ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def _hold_scheduler() -> None:
    """Acquire the lock of the scheduler that started this run, and keep it."""
    frame = inspect.currentframe()
    while frame is not None and not hasattr(frame.f_locals.get("self"), "scheduler"):
        frame = frame.f_back
    assert frame is not None
    frame.f_locals["self"].scheduler._lock.acquire()


def _take_all_descriptors() -> None:
    with suppress(OSError):
        while True:
            os.open(os.devnull, os.O_RDONLY)


class _Model(PreparedModel):
    def __init__(self, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], fault: bytes) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._fault = fault

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        fault = self._fault
        if fault.startswith(_GIVES) and inputs[0].size and inputs[0].flat[0] < 0:
            return cast("list[Array]", NONSENSE[fault.removeprefix(_GIVES).decode()].make(inputs[0]))
        if fault == b"first run":
            self._fault = b""
        if fault in (b"run", b"first run"):
            raise RuntimeError("DMA fault")
        if fault == b"ends gRPC":
            _end_serving()
        if self._fault == b"exits":
            sys.exit("DMA fault")
        if self._fault == b"holds the scheduler":
            _hold_scheduler()
        if self._fault == b"holds Python":
            _hold_python()
        if self._fault == b"takes all descriptors":
            _take_all_descriptors()
        if self._fault == b"stuck":
            threading.Event().wait()
        if self._fault == b"never ends":
            _log.info("running for ever")
            stop = threading.Event()
            cancellation.on_cancel(stop.set)
            stop.wait(cancellation.remaining)
            cancellation.check()
        return [inputs[0]]

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        if self._fault.startswith(_GIVES):
            return Sizes((self.outputs[0].with_shape(inputs[0].shape),), inputs[0].nbytes)
        return super().sizes(inputs)

    def export(self) -> list[Part]:
        if self._fault == b"export":
            raise OperationFailed("the accelerator does not give the model away")
        return [Part.of(b"compiled")]

    def input_ranges(self) -> list[DimRange]:
        if self._fault == b"ranges":
            return []
        if self._fault.startswith(_GIVES):
            return super().input_ranges()
        return [DimRange(tuple(map(abs, spec.shape)), tuple(map(abs, spec.shape))) for spec in self.inputs]


class _Faulty(Backend):
    shares_models = False  # What one session breaks stays its own.

    def __init__(self, options: Mapping[str, str]) -> None:
        self._has_memory = "memory" in options

    def describe(self) -> DeviceInfo:
        capabilities = Capabilities(True, True, True, True, True)
        return DeviceInfo("faulty", "test", DeviceType.ACCELERATOR, capabilities, "faulty", "0")

    def supported(self, graph: Graph) -> list[Support]:
        return [Support() for _ in graph.nodes]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        fault = config.extensions.get("fault", b"")
        if fault == b"prepare exits":
            sys.exit("the compiler gave up")
        if fault == b"prepare":
            raise OperationFailed("the accelerator does not take the model")
        if fault == b"extension":
            raise InvalidParameter("the accelerator does not know this value of the extension fault")
        if fault == b"compiles for ever":
            _log.info("compiling for ever")
        while fault == b"compiles for ever":  # `progress` raises when the client is gone.
            progress(0.5)
            threading.Event().wait(0.02)
        return _Model(graph.input_specs, graph.output_specs, fault)

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        raise InvalidFile("the accelerator does not take back what it gave")

    def allocate(self, size_bytes: int) -> DeviceBuffer | None:
        return cast(DeviceBuffer, 7) if self._has_memory else None


def create(options: Mapping[str, str]) -> Backend:
    return _Faulty(options)
