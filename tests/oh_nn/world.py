"""Objects that a C program would have created before the call that a case tests."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from daemon_process import DaemonProcess
from waiting import until

from nnrt_client import Settings, connect, disconnect, oh_nn
from nnrt_client.oh_nn import *
from nnrt_client.session.process_runtime import process_runtime

# Shortens the time until a stopped daemon counts as dead.
_IMPATIENT = Settings(heartbeat_timeout_s=1.0)

# Input of the models.
X = np.array([[1, 2, 3, 4]], np.float32)

_DESTROY: tuple[Callable[[Any], object], ...] = (
    OH_NNTensorDesc_Destroy,
    OH_NNTensor_Destroy,
    OH_NNQuantParam_Destroy,
    OH_NNModel_Destroy,
    OH_NNCompilation_Destroy,
    OH_NNExecutor_Destroy,
)


class World:
    """Creates objects with the C functions, and destroys them after the case.

    `addresses` are those of the shared daemons, by backend name.
    """

    def __init__(self, addresses: Mapping[str, str], directory: Path) -> None:
        self._addresses = addresses
        self.directory = directory
        self._connected: tuple[str, ...] = ()
        self._own: list[DaemonProcess] = []
        self._destroy: list[Callable[[], object]] = []

    def close(self) -> None:
        while self._destroy:
            self._destroy.pop()()
        disconnect()
        for daemon in self._own:
            daemon.kill()

    def connect(self, *backends: str) -> list[int]:
        """Connect to the devices with these backends, the first as device 0; return their ids."""
        if backends != self._connected:
            connect(*(self._addresses[backend] for backend in backends))
            self._connected = backends
        return self.ids()

    def connect_own(self, backend: str = "reference") -> DaemonProcess:
        """Connect to a new daemon that the case may kill or stop."""
        daemon = DaemonProcess("--backend", backend)
        self._own.append(daemon)
        connect(daemon.address, settings=_IMPATIENT)
        assert self.ids()
        return daemon

    def ids(self) -> list[int]:
        code, ids = OH_NNDevice_GetAllDevicesID()
        assert code == OH_NN_SUCCESS
        return list(ids)

    def wait_for_runs(self, count: int) -> None:
        """Wait until device 0 has this many running and queued runs."""
        device = process_runtime().device()
        until(lambda: device.state.running + device.state.queued == count)

    # ---- handles

    def kept(self, handle: Any, destroy: Callable[[Any], object]) -> Any:
        """Return a handle, which is destroyed after the case."""
        assert handle is not None, oh_nn.last_error()
        self._destroy.append(lambda: destroy(handle))
        return handle

    def let_go(self, pointer: Any) -> None:
        """Destroy a function's result of any kind after the case: the functions for other kinds do nothing."""
        self._destroy += [partial(destroy, pointer) for destroy in _DESTROY]

    def desc(
        self,
        shape: Sequence[int] | None = (1, 4),
        data_type: int = OH_NN_FLOAT32,
        format: int = OH_NN_FORMAT_NONE,
        name: str = "",
    ) -> Any:
        desc = self.kept(OH_NNTensorDesc_Create(), OH_NNTensorDesc_Destroy)
        if shape is not None:
            ok(OH_NNTensorDesc_SetShape(desc, shape))
        ok(OH_NNTensorDesc_SetDataType(desc, data_type))
        ok(OH_NNTensorDesc_SetFormat(desc, format))
        ok(OH_NNTensorDesc_SetName(desc, name))
        return desc

    def tensor(
        self, shape: Sequence[int] = (1, 4), values: Any = None, size: int | None = None, data_type: int = OH_NN_FLOAT32
    ) -> Any:
        """Create a tensor of device 0 with these values."""
        desc = self.desc(shape, data_type)
        made = OH_NNTensor_Create(0, desc) if size is None else OH_NNTensor_CreateWithSize(0, desc, size)
        tensor = self.kept(made, OH_NNTensor_Destroy)
        if values is not None:
            floats(tensor)[: np.size(values)] = np.ravel(values)
        return tensor

    def quant_param(self, count: int = 1, bits: int = 8) -> Any:
        quant = self.kept(OH_NNQuantParam_Create(), OH_NNQuantParam_Destroy)
        ok(OH_NNQuantParam_SetScales(quant, [0.5] * count))
        ok(OH_NNQuantParam_SetZeroPoints(quant, [3] * count))
        ok(OH_NNQuantParam_SetNumBits(quant, [bits] * count))
        return quant

    def empty_model(self) -> Any:
        return self.kept(OH_NNModel_Construct(), OH_NNModel_Destroy)

    def tensors(self, *shapes: Sequence[int] | None, data_type: int = OH_NN_FLOAT32) -> Any:
        """Create a model with tensors, and nothing else."""
        model = self.empty_model()
        for shape in shapes:
            ok(OH_NNModel_AddTensorToModel(model, self.desc(shape, data_type)))
        return model

    def model(self, shape: Sequence[int] = (1, 4), op: int = OH_NN_OPS_RELU) -> Any:
        """Create an unfinished model that computes tensor 1 from tensor 0 with one operation."""
        model = self.tensors(shape, shape)
        ok(OH_NNModel_AddOperation(model, op, [], [0], [1]))
        ok(OH_NNModel_SpecifyInputsAndOutputs(model, [0], [1]))
        return model

    def finished(self, shape: Sequence[int] = (1, 4), op: int = OH_NN_OPS_RELU) -> Any:
        model = self.model(shape, op)
        ok(OH_NNModel_Finish(model))
        return model

    def compilation(self, model: Any = None) -> Any:
        made = OH_NNCompilation_Construct(self.finished() if model is None else model)
        return self.kept(made, OH_NNCompilation_Destroy)

    def faulty(self, fault: str, shape: Sequence[int] = (1, 4)) -> Any:
        """Create a compilation for the faulty backend with this fault."""
        self.connect("faulty")
        compilation = self.compilation(self.finished(shape))
        ok(OH_NNCompilation_AddExtensionConfig(compilation, "fault", fault.encode()))
        return compilation

    def for_cache(self) -> Any:
        return self.kept(OH_NNCompilation_ConstructForCache(), OH_NNCompilation_Destroy)

    def offline_file(self, path: object) -> Any:
        made = OH_NNCompilation_ConstructWithOfflineModelFile(str(path))
        return self.kept(made, OH_NNCompilation_Destroy)

    def offline_buffer(self, data: bytes) -> Any:
        return self.kept(OH_NNCompilation_ConstructWithOfflineModelBuffer(data), OH_NNCompilation_Destroy)

    def built(self, model: Any = None) -> Any:
        compilation = self.compilation(model)
        ok(OH_NNCompilation_Build(compilation))
        return compilation

    def cached(self, version: int = 1, model: Any = None) -> Path:
        """Write the cache of device 0 into the directory, and return its file."""
        compilation = self.compilation(model)
        ok(OH_NNCompilation_SetCache(compilation, str(self.directory), version))
        ok(OH_NNCompilation_Build(compilation))
        (file,) = (path for path in self.directory.rglob("*") if path.is_file())
        return file

    def with_cache(self, version: int = 1) -> Any:
        """Create a compilation with the directory as its cache."""
        compilation = self.compilation()
        ok(OH_NNCompilation_SetCache(compilation, str(self.directory), version))
        return compilation

    def exported(self, compilation: Any = None) -> bytes:
        """Return the cache of a model, exported to a buffer."""
        buffer = bytearray(1 << 16)
        code, size = OH_NNCompilation_ExportCacheToBuffer(compilation or self.built(), buffer)
        ok(code)
        return bytes(buffer[:size])

    def executor(self, shape: Sequence[int] = (1, 4), compilation: Any = None) -> Any:
        made = OH_NNExecutor_Construct(compilation or self.built(self.finished(shape)))
        return self.kept(made, OH_NNExecutor_Destroy)

    def memory(self, executor: Any, length: int = 16, *, for_output: bool = False) -> Any:
        if for_output:
            memory = OH_NNExecutor_AllocateOutputMemory(executor, 0, length)
            return self.kept(memory, lambda handle: OH_NNExecutor_DestroyOutputMemory(executor, 0, handle))
        memory = OH_NNExecutor_AllocateInputMemory(executor, 0, length)
        return self.kept(memory, lambda handle: OH_NNExecutor_DestroyInputMemory(executor, 0, handle))

    def bound(self, executor: Any, output: Any = None) -> Any:
        """Set the input of an executor, and a buffer as its output."""
        ok(OH_NNExecutor_SetInput(executor, 0, legacy(X.shape), X))
        ok(OH_NNExecutor_SetOutput(executor, 0, bytearray(16) if output is None else output))
        return executor


def ok(code: Any) -> None:
    """Check that a step succeeded that prepares the tested call."""
    assert code == OH_NN_SUCCESS, oh_nn.last_error()


def value(answer: tuple[Any, ...]) -> Any:
    """Return the value of a function that must have succeeded."""
    code, given = answer
    ok(code)
    return given


def floats(tensor: Any) -> Any:
    """Return a writable view of a tensor's elements."""
    buffer = OH_NNTensor_GetDataBuffer(tensor)
    assert buffer is not None
    return np.frombuffer(buffer, np.float32)


def legacy(shape: Sequence[int] = (1, 4), data_type: int = OH_NN_FLOAT32, **others: Any) -> OH_NN_Tensor:
    return OH_NN_Tensor(data_type, shape, **others)


def destroyed(world: World) -> Any:
    """Return a destroyed handle. Its kind makes no difference: see test_destroying_twice."""
    handle = OH_NNTensorDesc_Create()
    ok(OH_NNTensorDesc_Destroy(handle))
    return handle
