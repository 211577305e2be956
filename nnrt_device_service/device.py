"""The device a daemon owns: a backend, the sessions that use it, and the rules between them. Knows no gRPC."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nnrt_device_service.constants import MissingConstants, uploaded_digests
from nnrt_device_service.scheduler import Gate, Scheduler
from nnrt_device_service.session import Session, Sessions
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig, PreparedModel, Support
from nnrt_hdi.enums import DeviceStatus, PerformanceMode, Priority
from nnrt_hdi.errors import InvalidParameter, OperationForbidden, OutOfMemory, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import Inference, infer_graph
from nnrt_hdi.tensor import Array, TensorSpec

Progress = Callable[[str, float], None]

_INPUT_UNKNOWN = "the device needs every dimension of an input; fix those that are unknown"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model in a session, ready to run."""

    model_id: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Device:
    """What the daemon does for its clients."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._settings = settings
        described = backend.describe()
        self.info = replace(described, device_name=settings.name or described.device_name)
        self.instance_id = secrets.token_bytes(16)
        self.sessions = Sessions(settings)
        self.scheduler = Scheduler(settings.concurrent_runs, settings.queued_runs, settings.priority_ageing_s)
        self.gate = Gate()

    @property
    def status(self) -> DeviceStatus:
        if self.gate.is_closed:
            return DeviceStatus.OFFLINE
        return DeviceStatus.BUSY if self.scheduler.queued else DeviceStatus.AVAILABLE

    def supported(self, graph: Graph) -> list[Support]:
        """Per node, whether `prepare` would take it."""
        return self._supported(infer_graph(graph))

    def prepare(
        self, session: Session, graph: Graph, config: ModelConfig, progress: Progress
    ) -> Prepared | MissingConstants:
        """Compile a graph, or say which constants to upload first.

        Raises InvalidParameter or Unsupported for a node the device doesn't run, OutOfMemory for one whose output is
        too large, OperationForbidden for a config the device can't honour.
        """
        progress("checking", 0.0)
        self._check_config(config)
        inferred = infer_graph(graph)
        inferred.raise_first_problem()
        known = inferred.graph
        self._require_known_inputs(known)
        for index, support in enumerate(self._supported(inferred)):
            if too_large := self._too_large(known, index):
                raise OutOfMemory(too_large, place=known.place(index))
            if not support.supported:
                raise Unsupported(support.reason, place=known.place(index))
        digests = uploaded_digests(graph)
        inline_bytes = sum(constant.size_bytes for constant in graph.constants.values() if constant.data is not None)
        held = session.constants.hold(known)
        if isinstance(held, MissingConstants):
            return held

        def release() -> None:
            session.constants.release(digests)
            session.budget.give_back(inline_bytes)

        try:
            session.budget.take(inline_bytes)
        except BaseException:
            session.constants.release(digests)
            raise
        try:
            prepared = self._backend.prepare(held, config, lambda fraction: progress("compiling", fraction))
        except BaseException:
            release()
            raise
        return self._added(session, prepared, release, config.priority)

    def restore(self, session: Session, buffers: Sequence[bytes], config: ModelConfig, progress: Progress) -> Prepared:
        """Load a model the device exported, or one its vendor's tools compiled."""
        self._check_config(config)
        progress("restoring", 0.0)
        return self._added(session, self._backend.restore(buffers, config), lambda: None, config.priority)

    def run(
        self, session: Session, model_id: int, inputs: Sequence[Array], cancellation: Cancellation
    ) -> tuple[tuple[TensorSpec, ...], list[Array]]:
        """Run a model when its turn comes; the specs of its outputs and the outputs."""
        held = session.model(model_id)
        with held.in_use() as prepared, session.running(cancellation):
            _check_inputs(prepared.inputs, inputs)
            with self.scheduler.turn(session.account, held.priority, cancellation):
                outputs = prepared.run(inputs, cancellation)
            return prepared.outputs, outputs

    def close(self, timeout_s: float) -> bool:
        """Let go of the accelerator when all work has ended; whether it did in time. If not, it is left as it is."""
        ended = self.gate.close(timeout_s)
        if ended:
            self._backend.close()
        return ended

    def _added(
        self, session: Session, prepared: PreparedModel, on_closed: Callable[[], None], priority: Priority
    ) -> Prepared:
        model_id = session.add_model(prepared, on_closed, priority)
        return Prepared(model_id, prepared.inputs, prepared.outputs)

    def _supported(self, inferred: Inference) -> list[Support]:
        graph = inferred.graph
        answers = []
        unknown = self._unknown_inputs(graph)
        for index, support in enumerate(self._backend.supported(graph)):
            problem = inferred.problems.get(index)
            reason = problem.message if problem else self._too_large(graph, index)
            if not reason and not unknown.isdisjoint(graph.nodes[index].inputs):
                reason = _INPUT_UNKNOWN
            answers.append(Support(reason) if reason else support)
        return answers

    def _too_large(self, graph: Graph, node: int) -> str:
        for tensor in graph.nodes[node].outputs:
            spec = graph.tensors[tensor]
            if not spec.is_dynamic and spec.byte_size > self._settings.tensor_bytes:
                return (
                    f"its output {spec} has {spec.byte_size} bytes; the daemon's limit (--tensor-bytes) is"
                    f" {self._settings.tensor_bytes}"
                )
        return ""

    def _require_known_inputs(self, graph: Graph) -> None:
        for index in sorted(self._unknown_inputs(graph)):
            raise Unsupported(_INPUT_UNKNOWN, place=graph.tensor_place(index))

    def _unknown_inputs(self, graph: Graph) -> set[int]:
        """Inputs of the graph with dimensions that the device would have to know, but can't."""
        if self.info.capabilities.dynamic_input:
            return set()
        return {index for index in graph.inputs if graph.tensors[index].is_dynamic}

    def _check_config(self, config: ModelConfig) -> None:
        capabilities = self.info.capabilities
        for wanted, offered, what in (
            (config.enable_float16, capabilities.float16_precision, "enable_float16"),
            (config.mode is not PerformanceMode.NONE, capabilities.performance_mode, "mode"),
            (config.priority is not Priority.NONE, capabilities.priority, "priority"),
        ):
            if wanted and not offered:
                raise OperationForbidden(
                    "the device can't honour it; leave it at its neutral value", place=f"ModelConfig.{what}"
                )


def require_input_count(specs: Sequence[TensorSpec], count: int) -> None:
    """Refuse another number of inputs than the model takes."""
    if len(specs) != count:
        raise InvalidParameter(f"{count} inputs were given; the model takes {len(specs)}")


def require_output_places(specs: Sequence[TensorSpec], room_bytes: Sequence[int | None]) -> None:
    """Refuse places for another number of outputs, or places too small for those whose size is known before the run.

    `room_bytes` has None for an output that may have any size.
    """
    if len(specs) != len(room_bytes):
        raise InvalidParameter(f"{len(room_bytes)} places for outputs were given; the model has {len(specs)}")
    for index, (spec, room) in enumerate(zip(specs, room_bytes, strict=True)):
        if room is not None and not spec.is_dynamic:
            require_room(index, spec.byte_size, room)


def require_room(index: int, size_bytes: int, room_bytes: int) -> None:
    """Refuse a place that is too small for an output."""
    if size_bytes > room_bytes:
        raise InvalidParameter(
            f"it has {size_bytes} bytes, its region {room_bytes}; give it more", place=f"output {index}"
        )


def _check_inputs(specs: Sequence[TensorSpec], inputs: Sequence[Array]) -> None:
    require_input_count(specs, len(inputs))
    for index, (spec, array) in enumerate(zip(specs, inputs, strict=True)):
        if array.dtype != spec.numpy_dtype or not spec.accepts(array.shape):
            raise InvalidParameter(
                f"it is {array.dtype.name}{list(array.shape)}; the model takes {spec}",
                place=f"input {index}" + (f" {spec.name!r}" if spec.name else ""),
            )
