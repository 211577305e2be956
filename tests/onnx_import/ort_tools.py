"""ONNX models quantized or optimized by ONNX Runtime's own tools."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnx_models import AnyArray
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

MICROSOFT = "com.microsoft"
LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Calibration data."""

    def __init__(self, *feeds: Mapping[str, AnyArray]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Any:
        return next(self._feeds, None)


def statically_quantized(
    proto: onnx.ModelProto,
    feeds: Mapping[str, AnyArray],
    format: QuantFormat,
    *,
    activations: QuantType = QuantType.QUInt8,
    weights: QuantType = QuantType.QInt8,
    per_channel: bool = False,
    reduce_range: bool = False,
    **extra: Any,
) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "quantized.onnx"
        quantize_static(
            named(proto),
            target,
            Reader(feeds),
            format,
            activation_type=activations,
            weight_type=weights,
            per_channel=per_channel,
            reduce_range=reduce_range,
            extra_options=extra,
        )
        return onnx.load(target)


def dynamically_quantized(
    proto: onnx.ModelProto,
    *,
    weights: QuantType = QuantType.QInt8,
    per_channel: bool = False,
    reduce_range: bool = False,
) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "quantized.onnx"
        quantize_dynamic(
            named(proto),
            target,
            weight_type=weights,
            per_channel=per_channel,
            reduce_range=reduce_range,
            # Type of the values after ONNX Runtime's own operators, which onnx can't infer.
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
        return onnx.load(target)


def optimized(proto: onnx.ModelProto, level: str, *, without: Sequence[str] = ()) -> onnx.ModelProto:
    """Return the model as ONNX Runtime saves it after its optimizations, without the optimizers in `without`."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = LEVELS[level]
        options.optimized_model_filepath = str(target)
        onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=without
        )
        return onnx.load(target)


def named(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with names for all nodes and types for all values, which the quantizer needs."""
    known = onnx.ModelProto()
    known.CopyFrom(proto)
    # The optimizer for transformers doesn't declare the domain of its operators.
    if MICROSOFT not in {entry.domain for entry in known.opset_import}:
        known.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    copy = onnx.shape_inference.infer_shapes(known)
    for at, node in enumerate(copy.graph.node):
        node.name = node.name or f"{node.op_type}_{at}"
    types = {info.name: info for info in copy.graph.value_info}
    for info in copy.graph.output:
        if info.name in types:
            info.CopyFrom(types[info.name])
    return copy
