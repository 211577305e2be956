"""Sessions of ONNX Runtime: how they compute, and the memory that all of them share."""

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.value import FLOAT32, AnyArray
from onnxruntime import ExecutionMode, GraphOptimizationLevel

from nnrt_backend_onnxruntime.extensions import session_entries
from nnrt_backend_onnxruntime.kernels import QUIET, Kernels
from nnrt_backend_onnxruntime.providers import PROVIDERS, ProviderDevice
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.enums import PerformanceMode
from nnrt_hdi.errors import NnrtError, OperationFailed
from nnrt_hdi.mapped_files import drop_pages

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mode:
    """Meaning of a performance mode: share of the threads, whether they spin while they wait, and optimizations."""

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


# An entry of a session's configuration: constants are not folded, but computed in each run.
NO_FOLDING = {"optimization.disable_specified_optimizers": "ConstantFolding"}


def session_options(
    device: ProviderDevice, config: ModelConfig, entries: Mapping[str, str] | None = None, profile: str = ""
) -> Any:
    """Return the options with which a model is compiled and run.

    Args:
        device: The device.
        config: The client's configuration of the model.
        entries: Further entries of the session's configuration.
        profile: How the path of a profile begins; empty for none.

    Raises:
        InvalidParameter: The configuration has an unknown extension.
    """
    mode = MODES[config.mode]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    options.execution_mode = ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = mode.level
    options.intra_op_num_threads = max(1, round(device.threads * mode.threads))
    options.inter_op_num_threads = 1
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    entries = {
        **device.integers.entries,
        **(entries or {}),
        "session.intra_op.allow_spinning": str(int(mode.spins)),
        "session.inter_op.allow_spinning": str(int(mode.spins)),
        "session.use_env_allocators": "1",
        # The bytes were checked as ONNX. ONNX Runtime must not read them as another format.
        "session.load_model_format": "ONNX",
        **session_entries(config.extensions),
    }
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    return options


def open_session(
    model: bytes, weights: Mapping[str, AnyArray], options: Any, device: ProviderDevice, extensions: Mapping[str, bytes]
) -> Any:
    """Open a session of a model. The session doesn't copy `weights`: keep them as long as the session.

    Raises:
        OperationFailed: ONNX Runtime can't load the model, or the provider isn't available. There is no fallback to
            another provider.
    """
    try:
        session = create_session(model, weights, options, device, extensions)
    except NnrtError:
        raise
    except Exception as error:
        is_exported = bool(options.optimized_model_filepath)  # Its optimization has worked before.
        if is_exported or options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL:
            raise OperationFailed(f"ONNX Runtime does not take the model: {error}") from error
        # Optimizations may create nodes that have no kernels.
        _log.warning("ONNX Runtime can't optimize a model, which runs without optimizations: %s", error)
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        return open_session(model, {}, options, device, extensions)
    wanted = PROVIDERS[device.provider]
    if wanted not in session.get_providers():
        raise OperationFailed(f"ONNX Runtime's {wanted} did not start; it would have run on {session.get_providers()}")
    return session


def create_session(
    model: bytes, weights: Mapping[str, AnyArray], options: Any, device: ProviderDevice, extensions: Mapping[str, bytes]
) -> Any:
    """Open a session as `open_session` does, but let ONNX Runtime's error through. Adds the weights to the options."""
    limit_memory()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in weights.items()}
    if values:
        options.add_external_initializers(list(values), list(values.values()))
    providers = list(device.providers(extensions))
    session = onnxruntime.InferenceSession(model, options, providers=providers, enable_fallback=0)
    drop_pages(weights.values())  # ONNX Runtime has packed most of them, and reads the others again.
    return session


_arena_lock = threading.Lock()
_has_arena = False


def limit_memory(most_bytes: int | None = None) -> None:
    """Limit the memory of all sessions of this process together, by default to the memory of the machine.

    They share one arena, which keeps its memory until `release_memory`. Only the first call has an effect.
    """
    global _has_arena
    with _arena_lock:
        if _has_arena:
            return
        most_bytes = most_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        where = onnxruntime.OrtMemoryInfo(
            "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
        )
        # If it grew by exactly what is needed, runs whose shapes grow would take 1.6 times as long.
        next_power_of_two = 0
        onnxruntime.create_and_register_allocator(where, onnxruntime.OrtArenaCfg(most_bytes, next_power_of_two, -1, -1))
        _has_arena = True


def release_memory() -> None:
    """Release memory of the shared arena that no session uses. ONNX Runtime does this only at the end of a run."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session, name = smallest_session(ProviderDevice("cpu", 0, threads=1))
    session.run(None, {name: np.zeros(1, FLOAT32)}, options)


@cache
def smallest_session(device: ProviderDevice) -> tuple[Any, str]:
    """Return a session of a model that returns its input, one number; and the name of that input.

    Raises:
        OperationFailed: The provider isn't available.
    """
    op = Onnx(Kernels(device.providers()))
    model = op.model([(op.Identity(op.input(FLOAT32, (1,))), (1,))]).SerializeToString()
    return open_session(model, {}, session_options(device, ModelConfig()), device, {}), op.inputs[0].name
