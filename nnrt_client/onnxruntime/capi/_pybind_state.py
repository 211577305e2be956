"""Names that libraries import from ONNX Runtime's extension module: exceptions, classes and functions."""

# ruff: noqa: F401
from nnrt_client.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
from nnrt_client.onnxruntime.inference_session import InferenceSession
from nnrt_client.onnxruntime.io_binding import IOBinding
from nnrt_client.onnxruntime.io_binding import IOBinding as SessionIOBinding
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
from nnrt_client.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from nnrt_client.onnxruntime.ort_value import OrtValue
from nnrt_client.onnxruntime.providers import get_available_providers, set_default_provider_options
