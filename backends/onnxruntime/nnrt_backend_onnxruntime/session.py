"""Sessions of ONNX Runtime: on which provider, and how it is to compute."""

import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime import ExecutionMode, GraphOptimizationLevel

from nnrt_backend_onnxruntime.builder import FLOAT32, AnyArray, Onnx
from nnrt_backend_onnxruntime.kernels import QUIET, Kernels, Providers
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.enums import DeviceType, PerformanceMode
from nnrt_hdi.errors import InvalidParameter, OperationFailed

_log = logging.getLogger(__name__)

# Providers under the names that users give them.
PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "nv_tensorrt_rtx": "NvTensorRTRTXExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "dnnl": "DnnlExecutionProvider",
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "cann": "CANNExecutionProvider",
    "vitisai": "VitisAIExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "acl": "ACLExecutionProvider",
    "armnn": "ArmNNExecutionProvider",
}
_GPUS = frozenset({"cuda", "tensorrt", "nv_tensorrt_rtx", "rocm", "migraphx", "directml", "webgpu"})
# What a provider leaves, ONNX Runtime may compute on these before it does on the CPU.
_NEXT = {"tensorrt": "cuda"}
# Providers that make programs of their own of a model, which ONNX Runtime can't write down.
_COMPILING = frozenset(
    {"tensorrt", "nv_tensorrt_rtx", "migraphx", "openvino", "dnnl", "coreml", "qnn", "cann", "vitisai", "xnnpack"}
)
# Providers with more than one device, which they call so.
_DEVICE_OPTION = {
    **dict.fromkeys(("cuda", "tensorrt", "nv_tensorrt_rtx", "rocm", "migraphx", "directml", "cann"), "device_id"),
    "webgpu": "deviceId",
}

# What an extension "session.<name>" may say: a number, mostly 0 or 1. Nothing that reads or writes files.
SESSION_OPTIONS = frozenset(
    {
        "session.disable_prepacking",
        "session.disable_quant_qdq",
        "session.dynamic_block_base",
        "session.enable_gelu_approximation",
        "session.enable_quant_qdq_cleanup",
        "session.force_spinning_stop",
        "session.inter_op.allow_spinning",
        "session.intra_op.allow_spinning",
        "session.set_denormal_as_zero",
        "session.use_device_allocator_for_initializers",
    }
)
PROVIDER_PREFIX = "provider."
# What an extension "provider.<name>" may say: how to compute. Providers have other options, which name files, load
# libraries, choose a device or are addresses of memory and functions; those are not for whoever can reach the daemon.
_ON_GPU = frozenset(
    {
        "arena_extend_strategy",
        "cudnn_conv1d_pad_to_nc1d",
        "cudnn_conv_algo_search",
        "cudnn_conv_use_max_workspace",
        "do_copy_in_default_stream",
        "fuse_conv_bias",
        "gpu_mem_limit",
        "prefer_nhwc",
        "use_tf32",
    }
)
PROVIDER_OPTIONS = {
    "cuda": _ON_GPU,
    "rocm": _ON_GPU,
    "tensorrt": frozenset(
        {
            "trt_auxiliary_streams",
            "trt_bf16_enable",
            "trt_builder_optimization_level",
            "trt_context_memory_sharing_enable",
            "trt_fp16_enable",
            "trt_layer_norm_fp32_fallback",
            "trt_max_partition_iterations",
            "trt_max_workspace_size",
            "trt_min_subgraph_size",
            "trt_profile_max_shapes",
            "trt_profile_min_shapes",
            "trt_profile_opt_shapes",
            "trt_sparsity_enable",
        }
    ),
    "openvino": frozenset({"disable_dynamic_shapes", "model_priority", "num_streams", "precision"}),
    "migraphx": frozenset({"migraphx_exhaustive_tune", "migraphx_fp16_enable"}),
    "directml": frozenset({"disable_metacommands", "performance_preference"}),
    "coreml": frozenset({"MLComputeUnits", "ModelFormat", "RequireStaticInputShapes", "SpecializationStrategy"}),
    "qnn": frozenset({"enable_htp_fp16_precision", "htp_graph_finalization_optimization_mode", "htp_performance_mode"}),
    "webgpu": frozenset({"preferredLayout"}),
}
_MOST_OPTION_BYTES = 256
_MOST_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Mode:
    """What a performance mode means: the share of the threads, whether they spin while they wait, optimizations."""

    threads: float
    spins: bool
    level: Any


MODES = {
    PerformanceMode.NONE: Mode(1, False, GraphOptimizationLevel.ORT_ENABLE_ALL),
    PerformanceMode.LOW: Mode(0, False, GraphOptimizationLevel.ORT_ENABLE_BASIC),
    PerformanceMode.MEDIUM: Mode(0.5, False, GraphOptimizationLevel.ORT_ENABLE_EXTENDED),
    PerformanceMode.HIGH: Mode(1, False, GraphOptimizationLevel.ORT_ENABLE_ALL),
    PerformanceMode.EXTREME: Mode(1, True, GraphOptimizationLevel.ORT_ENABLE_ALL),
}


def present_providers() -> list[str]:
    """The providers that this ONNX Runtime was built with, as users name them."""
    available = set(onnxruntime.get_available_providers())
    return [name for name, provider in PROVIDERS.items() if provider in available]


@dataclass(frozen=True, slots=True)
class Target:
    """The provider and device that sessions run on."""

    provider: str
    device_index: int
    threads: int

    @property
    def device_type(self) -> DeviceType:
        if self.provider == "cpu":
            return DeviceType.CPU
        return DeviceType.GPU if self.provider in _GPUS else DeviceType.ACCELERATOR

    @property
    def is_cpu(self) -> bool:
        return self.provider == "cpu"

    @property
    def can_export(self) -> bool:
        """Whether ONNX Runtime can write down what it makes of a model."""
        return self.provider not in _COMPILING

    def providers(self, extensions: Mapping[str, bytes] | None = None) -> Providers:
        """As ONNX Runtime takes them. It computes on the CPU what the provider leaves, as all of them need."""
        chosen = [(self.provider, _provider_options(self.provider, extensions or {}))]
        if next_one := _NEXT.get(self.provider):
            chosen.append((next_one, {}))
        for name, options in chosen:
            if device_option := _DEVICE_OPTION.get(name):
                options[device_option] = str(self.device_index)
        if not self.is_cpu:
            chosen.append(("cpu", {}))
        return [(PROVIDERS[name], options) for name, options in chosen]

    def require_device_index(self) -> None:
        """Refuse a device that the provider can't have."""
        if self.device_index and self.provider not in _DEVICE_OPTION:
            raise InvalidParameter(f"device_index is {self.device_index}, but {self.provider} has one device; use 0")


def session_options(target: Target, config: ModelConfig, entries: Mapping[str, str] | None = None) -> Any:
    """How a model is compiled and run; `entries` are more of its configuration.

    Raises InvalidParameter for an extension that is not known.
    """
    mode = MODES[config.mode]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    options.execution_mode = ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = mode.level
    options.intra_op_num_threads = max(1, round(target.threads * mode.threads))
    options.inter_op_num_threads = 1
    entries = {
        **(entries or {}),
        "session.intra_op.allow_spinning": str(int(mode.spins)),
        "session.inter_op.allow_spinning": str(int(mode.spins)),
        "session.use_env_allocators": "1",
        # Else bytes that were checked as ONNX could be read as another format.
        "session.load_model_format": "ONNX",
        **{name: value for name, value in _texts(config.extensions).items() if not name.startswith(PROVIDER_PREFIX)},
    }
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    return options


def open_session(
    model: bytes, weights: Mapping[str, AnyArray], options: Any, target: Target, extensions: Mapping[str, bytes]
) -> Any:
    """A session with this model. Its large constants stay where they are: keep them as long as it.

    Raises OperationFailed where the provider can't be had: there is no fall-back to another.
    """
    require_memory_limit()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in weights.items()}
    if values:
        options.add_external_initializers(list(values), list(values.values()))
    providers = list(target.providers(extensions))
    try:
        session = onnxruntime.InferenceSession(model, options, providers=providers, enable_fallback=0)
    except Exception as error:
        if options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL:
            raise OperationFailed(f"ONNX Runtime does not take the model: {error}") from error
        # Its optimizations may make of sound models what it has no kernels for.
        _log.warning("ONNX Runtime can't optimize a model, which is run as it is: %s", error)
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        return open_session(model, {}, options, target, extensions)
    wanted = PROVIDERS[target.provider]
    if wanted not in session.get_providers():
        raise OperationFailed(f"ONNX Runtime's {wanted} did not start; it would have run on {session.get_providers()}")
    return session


def _provider_options(provider: str, extensions: Mapping[str, bytes]) -> dict[str, str]:
    """What extensions say to the provider, if it is something that they may say."""
    texts = _texts(extensions)
    options = {name[len(PROVIDER_PREFIX) :]: value for name, value in texts.items() if name.startswith(PROVIDER_PREFIX)}
    known = PROVIDER_OPTIONS.get(provider, frozenset())
    if unknown := sorted(options.keys() - known):
        has = ", ".join(sorted(known)) or "none"
        raise InvalidParameter(f"the provider {provider} has no option {unknown[0]!r} for clients; it has {has}")
    return options


def _texts(extensions: Mapping[str, bytes]) -> dict[str, str]:
    texts = {}
    for name, value in extensions.items():
        is_option = name in SESSION_OPTIONS
        if not is_option and not name.startswith(PROVIDER_PREFIX):
            known = ", ".join(sorted(SESSION_OPTIONS))
            raise InvalidParameter(f"there is no extension {name!r}; use {known}, or {PROVIDER_PREFIX}NAME")
        if len(value) > _MOST_OPTION_BYTES or not value.isascii():
            raise InvalidParameter(f"extension {name!r} has {len(value)} bytes; use at most 256 of ASCII")
        texts[name] = value.decode()
        if is_option and not (texts[name].isdigit() and len(value) <= _MOST_DIGITS):
            raise InvalidParameter(f"extension {name!r} is {texts[name]!r}; use 1 or 0")
    return texts


def load_libraries(target: Target) -> None:
    """Load CUDA from where pip installs it; ONNX Runtime itself looks where the system has its libraries."""
    if target.provider in ("cuda", "tensorrt"):
        with redirect_stdout(sys.stderr):  # It prints what it doesn't find.
            onnxruntime.preload_dlls()


_arena_lock = threading.Lock()
_has_arena = False


def require_memory_limit() -> None:
    """Let all sessions of this process together take no more memory than the machine, or its container, has.

    They share one arena, which keeps what it once took until `release_memory`.
    """
    global _has_arena
    with _arena_lock:
        if _has_arena:
            return
        where = onnxruntime.OrtMemoryInfo(
            "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
        )
        as_requested = 1  # By what is needed, not by the next power of two.
        onnxruntime.create_and_register_allocator(where, onnxruntime.OrtArenaCfg(memory_bytes(), as_requested, -1, -1))
        _has_arena = True


def release_memory() -> None:
    """Give back what the shared arena keeps but no session uses. ONNX Runtime does so at the end of a run only."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session, name = smallest_session(Target("cpu", 0, threads=1))
    session.run(None, {name: np.zeros(1, FLOAT32)}, options)


@cache
def smallest_session(target: Target) -> tuple[Any, str]:
    """A session that gives its input of one number, and the name of that. Raises OperationFailed as any."""
    op = Onnx(Kernels(target.providers()))
    model = op.model([(op.Identity(op.input(FLOAT32, (1,))), (1,))]).SerializeToString()
    return open_session(model, {}, session_options(target, ModelConfig()), target, {}), op.inputs[0].name


def memory_bytes() -> int:
    """The memory that this process may have."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical
