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

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mode:
    """The meaning of a performance mode: the share of the threads, if they spin while they wait, optimizations."""

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


# Of the configuration of a session: what follows from constants is computed in each run.
NO_FOLDING = {"optimization.disable_specified_optimizers": "ConstantFolding"}


def session_options(
    device: ProviderDevice, config: ModelConfig, entries: Mapping[str, str] | None = None, profile: str = ""
) -> Any:
    """The options by which a model is compiled and run; `entries` are more of its configuration, and `profile` is how
    the path of the file begins that says what its operators took.

    Raises InvalidParameter for an extension that is not known.
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
        # Else bytes that were checked as ONNX could be read as another format.
        "session.load_model_format": "ONNX",
        **session_entries(config.extensions),
    }
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    return options


def open_session(
    model: bytes, weights: Mapping[str, AnyArray], options: Any, device: ProviderDevice, extensions: Mapping[str, bytes]
) -> Any:
    """A session with this model. Its large constants stay where they are: keep them as long as it.

    Raises OperationFailed where the provider can't be had: there is no fall-back to another.
    """
    try:
        session = created_session(model, weights, options, device, extensions)
    except NnrtError:
        raise
    except Exception as error:
        is_exported = bool(options.optimized_model_filepath)  # As it was optimized before, so it can be.
        if is_exported or options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL:
            raise OperationFailed(f"ONNX Runtime does not take the model: {error}") from error
        # Its optimizations may make of sound models what it has no kernels for.
        _log.warning("ONNX Runtime can't optimize a model, which is run as it is: %s", error)
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        return open_session(model, {}, options, device, extensions)
    wanted = PROVIDERS[device.provider]
    if wanted not in session.get_providers():
        raise OperationFailed(f"ONNX Runtime's {wanted} did not start; it would have run on {session.get_providers()}")
    return session


def created_session(
    model: bytes, weights: Mapping[str, AnyArray], options: Any, device: ProviderDevice, extensions: Mapping[str, bytes]
) -> Any:
    """The session that ONNX Runtime makes of a model, or its error. The options get the weights, as `open_session`."""
    limit_memory()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in weights.items()}
    if values:
        options.add_external_initializers(list(values), list(values.values()))
    providers = list(device.providers(extensions))
    return onnxruntime.InferenceSession(model, options, providers=providers, enable_fallback=0)


_arena_lock = threading.Lock()
_has_arena = False


def limit_memory(most_bytes: int | None = None) -> None:
    """Let all sessions of this process together take no more memory than so much, or what the machine has.

    They share one arena, which keeps what it once took until `release_memory`. The first call decides.
    """
    global _has_arena
    with _arena_lock:
        if _has_arena:
            return
        most_bytes = most_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        where = onnxruntime.OrtMemoryInfo(
            "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
        )
        as_requested = 1  # By what is needed, not by the next power of two.
        onnxruntime.create_and_register_allocator(where, onnxruntime.OrtArenaCfg(most_bytes, as_requested, -1, -1))
        _has_arena = True


def release_memory() -> None:
    """Give back what the shared arena keeps but no session uses. ONNX Runtime does so at the end of a run only."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session, name = smallest_session(ProviderDevice("cpu", 0, threads=1))
    session.run(None, {name: np.zeros(1, FLOAT32)}, options)


@cache
def smallest_session(device: ProviderDevice) -> tuple[Any, str]:
    """A session that gives its input of one number, and the name of that. Raises OperationFailed as any."""
    op = Onnx(Kernels(device.providers()))
    model = op.model([(op.Identity(op.input(FLOAT32, (1,))), (1,))]).SerializeToString()
    return open_session(model, {}, session_options(device, ModelConfig()), device, {}), op.inputs[0].name
