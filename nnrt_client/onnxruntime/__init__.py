"""ONNX Runtime's interface for devices of daemons. An application changes one import and adds one address.

import nnrt_client.onnxruntime as onnxruntime

session = onnxruntime.InferenceSession(
    "model.onnx", providers=[("NnrtExecutionProvider", {"device": "10.0.0.7:50051"})]
)
"""

import sys
from importlib.machinery import PathFinder

from nnrt_client.onnxruntime.capi import _pybind_state as _pybind_state
from nnrt_client.onnxruntime.inference_session import InferenceSession
from nnrt_client.onnxruntime.io_binding import IOBinding
from nnrt_client.onnxruntime.module_functions import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_build_info,
    get_device,
    get_version_string,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from nnrt_client.onnxruntime.node_arg import ModelMetadata, NodeArg
from nnrt_client.onnxruntime.onnxruntime_modules import OnnxRuntimeModules
from nnrt_client.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from nnrt_client.onnxruntime.ort_value import OrtValue
from nnrt_client.onnxruntime.providers import get_available_providers, set_default_provider_options
from nnrt_hdi import __version__ as __version__

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_default_provider_options",
    "set_seed",
]

# Modules that this package lacks, such as `quantization` and `transformers`, are ONNX Runtime's own if it is installed.
if (_onnxruntime := PathFinder.find_spec("onnxruntime")) is not None:
    sys.meta_path.insert(0, OnnxRuntimeModules(__name__, __path__, _onnxruntime.submodule_search_locations or []))
