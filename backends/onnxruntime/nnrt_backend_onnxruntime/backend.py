"""Backend of one device that ONNX Runtime computes on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnxruntime
from nnrt_onnx_lowering import lower

from nnrt_backend_onnxruntime.cache import exporter, restore
from nnrt_backend_onnxruntime.deadlines import Deadlines
from nnrt_backend_onnxruntime.folding import folds_little
from nnrt_backend_onnxruntime.kernels import Kernels
from nnrt_backend_onnxruntime.model import OnnxModel, without_large_constants
from nnrt_backend_onnxruntime.programs import loading as programs
from nnrt_backend_onnxruntime.programs.trials import Trials
from nnrt_backend_onnxruntime.providers import PROVIDERS, ProviderDevice, load_libraries, present_providers
from nnrt_backend_onnxruntime.session import NO_FOLDING, limit_memory, open_session, session_options, smallest_session
from nnrt_backend_onnxruntime.support import node_support
from nnrt_hdi.backend import Backend, BackendSkipped, Capabilities, DeviceInfo, ModelConfig, PreparedModel, Support
from nnrt_hdi.errors import InvalidParameter, NnrtError, Unsupported
from nnrt_hdi.forking import CAN_FORK
from nnrt_hdi.graph import Graph
from nnrt_hdi.host_limits import processors
from nnrt_hdi.ops import inferred_graph, require_fits
from nnrt_hdi.ops.in_place import in_place
from nnrt_hdi.part import Part

OPTIONS = ("provider", "device_index", "threads", "name")


class OnnxRuntimeBackend(Backend):
    """Backend of one device of one provider."""

    def __init__(self, device: ProviderDevice, name: str = "") -> None:
        """Create the backend.

        Raises:
            InvalidParameter: This ONNX Runtime doesn't have the provider, or the provider doesn't have the device.
            BackendSkipped: The provider doesn't start on this host.
        """
        _require_present(device)
        self._device = device
        if device.is_cpu:
            self.isolates = "none"
            # One run more than there are processors for: it computes while the tensors of another are copied.
            self.concurrent_runs = processors() // device.threads + 1
        self._kernels = Kernels(device.providers(), device.integers, computes_float16=not device.is_cpu)
        self._support = node_support(device, self._kernels)
        self._deadlines = Deadlines()
        # Other providers' libraries take longer to start in a trial process than most files take to load.
        self._trials = Trials() if device.is_cpu and CAN_FORK else None
        index = f"-{device.device_index}" if device.device_index else ""
        self._info = DeviceInfo(
            device_name=name or f"onnxruntime-{device.provider}{index}",
            vendor_name="nnrt",
            device_type=device.device_type,
            capabilities=Capabilities(
                float16_precision=True,
                performance_mode=True,
                priority=True,
                dynamic_input=True,
                model_cache=device.can_export,
                profiling=True,
                program_formats=(programs.FORMAT,),
            ),
            backend_name="onnxruntime",
            backend_version=f"{onnxruntime.__version__} ({', '.join(present_providers())})",
        )

    def describe(self) -> DeviceInfo:
        return self._info

    def supported(self, graph: Graph) -> list[Support]:
        """Return the support of each node: whether ONNX Runtime loads a model of it alone. Answers are cached."""
        return self._support.of(graph)

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> OnnxModel:
        graph = inferred_graph(graph)
        require_fits(graph, graph.tensors, config.max_tensor_bytes)  # Before ONNX Runtime computes constants.
        entries = {} if folds_little(graph) else NO_FOLDING
        options = session_options(self._device, config, entries)
        lowered = lower(graph, self._kernels, float16=config.enable_float16)
        progress(0.25)
        session = open_session(
            lowered.model.SerializeToString(), lowered.weights, options, self._device, config.extensions
        )
        progress(1.0)
        level = options.graph_optimization_level

        def reopen(profile: str) -> Any:
            again = session_options(self._device, config, entries, profile)
            again.graph_optimization_level = level
            model = lowered.model.SerializeToString()
            return open_session(model, lowered.weights, again, self._device, config.extensions)

        count, light = len(graph.inputs), without_large_constants(graph)
        export = exporter(self._device, light, count, lowered, config, entries, level)
        most, shared = config.max_tensor_bytes, in_place(graph)
        return OnnxModel(session, light, count, lowered.weights, most, self._deadlines, export, reopen, shared)

    def load_program(
        self, format: str, parts: Sequence[Part], config: ModelConfig, progress: Callable[[float], None]
    ) -> PreparedModel:
        if format != programs.FORMAT:
            raise Unsupported(f"the format is {format!r}; this device takes {programs.FORMAT!r}")
        trials = self._trials if config.crashes is None else None
        return programs.load_program(
            parts, config, self._device, self._deadlines, progress, trials, is_optimized=not config.crashes
        )

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        if programs.is_program(parts):
            trials = self._trials if config.crashes is None else None
            return programs.restore_program(parts, config, self._device, self._deadlines, trials)
        return restore(parts, config, self._device, self._deadlines)

    def holds_program(self, parts: Sequence[Part]) -> bool:
        return programs.may_be_program(parts)

    def loading_bytes(self, parts: Sequence[Part], config: ModelConfig) -> int:
        """Return the size of the copy of the parts that a trial process gets, in bytes."""
        is_tried = self._trials is not None and not config.is_own and programs.may_be_program(parts)
        return sum(part.size_bytes for part in parts) if is_tried else 0

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        limit_memory(run_bytes)
        if self._trials is not None:
            self._trials.run_bytes = run_bytes
            if accepts_programs:
                self._trials.start()

    def close(self) -> None:
        self._deadlines.close()
        if self._trials is not None:
            self._trials.close()


def create(options: Mapping[str, str]) -> OnnxRuntimeBackend:
    """Return the backend; the entry point's factory.

    Args:
        options: `provider` (cpu, cuda, tensorrt, ...; default cpu), `device_index` (default 0), `threads` (default: the
            number of processors) and `name`, the device's.

    Returns:
        The backend of that device.

    Raises:
        InvalidParameter: An option is unknown or wrong, or the device doesn't exist.
        BackendSkipped: The provider doesn't start on this host.
    """
    for option in options:
        if option not in OPTIONS:
            raise InvalidParameter(f"the onnxruntime backend has no option {option!r}; it has {', '.join(OPTIONS)}")
    provider = options.get("provider", "cpu")
    if provider not in PROVIDERS:
        raise InvalidParameter(f"there is no provider {provider!r}; present: {', '.join(present_providers())}")
    threads = _number(options, "threads", processors(), least=1)
    return OnnxRuntimeBackend(
        ProviderDevice(provider, _number(options, "device_index", 0), threads), options.get("name", "")
    )


def _number(options: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) >= least):
        raise InvalidParameter(f"option {name} is {text!r}; use a number of {least} or more")
    return int(text)


def _require_present(device: ProviderDevice) -> None:
    """Refuse a provider that this ONNX Runtime doesn't have, or that doesn't start on this host."""
    if device.provider not in present_providers():
        raise InvalidParameter(
            f"provider {device.provider!r} is not in this ONNX Runtime {onnxruntime.__version__};"
            f" present: {', '.join(present_providers())}"
        )
    device.require_device_index()
    if device.is_cpu:
        return
    load_libraries(device)
    try:
        smallest_session(device)
    except NnrtError as error:
        raise BackendSkipped(f"provider {device.provider!r} does not start here: {error}") from error
