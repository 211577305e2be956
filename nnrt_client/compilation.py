"""A model on its way to a device."""

import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Any, NoReturn

from typing_extensions import Self

from nnrt_client import upload
from nnrt_client.device import Device, Link
from nnrt_client.fork import LockOwner
from nnrt_client.model import Model
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig, Support
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import (
    ConnectionFailed,
    InvalidParameter,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    TimedOut,
    UnavailableDevice,
)
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import TensorSpec
from nnrt_hdi.v2 import prepared_model_pb2

# After these a build may be tried again: nothing was decided by the device.
_TRANSPORT_ERRORS = (UnavailableDevice, ConnectionFailed, TimedOut)


class _State(Enum):
    """The value says why nothing can be changed any more."""

    CONFIGURING = ""
    BUILDING = "the compilation is being built"
    BUILT = "the compilation has been built"
    FAILED = "building the compilation has failed"


class _Refused(Exception):
    """The device has decided: it does not take the model."""

    def __init__(self, error: NnrtError) -> None:
        super().__init__(str(error))
        self.error = error


class PreparedHandle(LockOwner):
    """A model that a daemon holds for us. Released when the compilation and all its executors are closed."""

    def __init__(self, link: Link, info: Any) -> None:
        self.link = link
        self.model_id: int = info.model_id
        self.inputs: tuple[TensorSpec, ...] = tuple(wire.tensor_spec(tensor) for tensor in info.inputs)
        self.outputs: tuple[TensorSpec, ...] = tuple(wire.tensor_spec(tensor) for tensor in info.outputs)
        super().__init__()
        self._users = 1

    def make_locks(self) -> None:
        self._lock = threading.Lock()

    def retain(self) -> "PreparedHandle":
        with self._lock:
            if not self._users:
                raise OperationForbidden("the compilation is closed; make a new one")
            self._users += 1
        return self

    def release(self) -> None:
        """Give up one use. A daemon that is gone has released everything already."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        connection = self.link.connection
        if connection.is_alive:
            with suppress(*_TRANSPORT_ERRORS):  # The end of the session releases it too.
                connection.call(
                    connection.models.Release,
                    prepared_model_pb2.ReleaseRequest(model_id=self.model_id),
                    connection.settings.query_timeout_s,
                    "PreparedModel.Release",
                )


class Compilation(LockOwner):
    """Compiles a finished model for a device.

    Options are checked against what the device said of itself. After `build` nothing can be changed any more;
    executors made from it keep working when it is closed.
    """

    def __init__(self, model: Model, device: Device) -> None:
        self._model = model
        self._device = device
        self._float16 = False
        self._mode = PerformanceMode.NONE
        self._priority = Priority.NONE
        self._extensions: dict[str, bytes] = {}
        super().__init__()
        self._state = _State.CONFIGURING
        self._prepared: PreparedHandle | None = None

    def make_locks(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_built(self) -> bool:
        return self._state is _State.BUILT

    def set_device(self, device: Device) -> None:
        """Compile for another device. Raises OperationForbidden after `build`."""
        self._require_configuring()
        self._device = device

    def set_performance_mode(self, mode: PerformanceMode) -> None:
        """Raises UnavailableDevice if the device has no performance modes, OperationForbidden after `build`."""
        self._require_configuring()
        self._require_capability("performance_mode", mode != PerformanceMode.NONE)
        self._mode = mode

    def set_priority(self, priority: Priority) -> None:
        """Raises UnavailableDevice if the device has no priorities, OperationForbidden after `build`."""
        self._require_configuring()
        self._require_capability("priority", priority != Priority.NONE)
        self._priority = priority

    def enable_float16(self, enable: bool = True) -> None:
        """Raises UnavailableDevice if the device can't compute in half precision, OperationForbidden after `build`."""
        self._require_configuring()
        self._require_capability("float16_precision", enable)
        self._float16 = enable

    def add_extension_config(self, name: str, value: bytes) -> None:
        """An attribute for the backend, which refuses in `build` what it doesn't know.

        A name given twice joins the values with `|`. Raises InvalidParameter for an empty name or value,
        OperationForbidden after `build`.
        """
        self._require_configuring()
        if not name or not value:
            raise InvalidParameter(f"extension config {name!r} has the value {value!r}; neither may be empty")
        self._extensions[name] = self._extensions[name] + b"|" + value if name in self._extensions else value

    def build(self, progress: Callable[[str, float], None] | None = None) -> None:
        """Compile. `progress` is called with a stage ("checking", "uploading", "compiling") and a fraction of it.

        Raises InvalidParameter for an unfinished or malformed model, a bad option, or a second build;
        OperationFailed where the device doesn't run the model, with every reason; UnavailableDevice,
        ConnectionFailed or TimedOut where it wasn't reached: then `build` may be called again.
        """
        with self._lock:
            if self._state is not _State.CONFIGURING:
                raise InvalidParameter(f"{self._state.value}; make a new one")
            self._state = _State.BUILDING
        outcome = _State.CONFIGURING
        try:
            if not self._model.is_finished:
                raise InvalidParameter("the model is not finished; call Model.finish first")
            graph, config, link = self._model.graph, self._config(), self._device.link()
            self._prepared = self._compiled(graph, config, link, progress or _ignore)
            outcome = _State.BUILT
        except _Refused as refused:
            outcome = _State.FAILED
            _raise_build_error(refused.error)
        finally:
            self._state = outcome

    def _compiled(self, graph: Graph, config: ModelConfig, link: Link, progress: upload.Progress) -> PreparedHandle:
        try:
            _require_supported(graph, upload.ask_supported(link.connection, graph))
            return PreparedHandle(link, upload.prepare(link.connection, graph, config, progress))
        except _TRANSPORT_ERRORS:
            raise
        except NnrtError as error:
            raise _Refused(error) from error

    def prepared(self) -> PreparedHandle:
        """The compiled model, with one more use of it. Raises OperationForbidden before `build` and after `close`."""
        prepared = self._prepared
        if prepared is None:
            raise OperationForbidden("the compilation is not built, or closed; call build first")
        return prepared.retain()

    def close(self) -> None:
        """Let go of the compiled model. Idempotent."""
        with self._lock:
            prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.release()

    def _config(self) -> ModelConfig:
        capabilities = self._device.capabilities
        for wanted, offered, what in (
            (self._float16, capabilities.float16_precision, "float16"),
            (self._mode != PerformanceMode.NONE, capabilities.performance_mode, "a performance mode"),
            (self._priority != Priority.NONE, capabilities.priority, "a priority"),
        ):
            if wanted and not offered:
                raise OperationForbidden(f"{self._device.name} does not offer {what}; take it back, or another device")
        return ModelConfig(
            enable_float16=self._float16,
            mode=wire.known_enum(PerformanceMode, self._mode, "performance mode"),
            priority=wire.known_enum(Priority, self._priority, "priority"),
            extensions=dict(self._extensions),
        )

    def _require_configuring(self) -> None:
        if self._state is not _State.CONFIGURING:
            raise OperationForbidden(f"{self._state.value}; make a new one to change it")

    def _require_capability(self, capability: str, wanted: bool) -> None:
        if wanted and not getattr(self._device.capabilities, capability):
            raise UnavailableDevice(f"{self._device.name} does not have the capability {capability}")


def _require_supported(graph: Graph, answers: list[Support]) -> None:
    reasons = [f"{graph.place(index)}: {answer.reason}" for index, answer in enumerate(answers) if not answer.supported]
    if reasons:
        raise OperationFailed("the device does not run " + "; ".join(reasons))


def _raise_build_error(error: NnrtError) -> NoReturn:
    """NNRt's codes for a device that refuses: what the caller can mend, else FAILED."""
    if isinstance(error, InvalidParameter | OperationForbidden | OperationFailed):
        raise error
    raise OperationFailed(error.message, place=error.place) from error


def _ignore(stage: str, fraction: float) -> None:
    """Progress that nobody watches."""
