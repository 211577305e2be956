"""The kernels that ONNX Runtime has, asked of itself: a model of one operator either loads or it doesn't.

It lacks kernels for some data types, mostly narrow integers. Elements of those are cast to a type that holds them and
for which there is a kernel, where the result is the same: integers that wrap around do so on the way back.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper

from nnrt_hdi.errors import Unsupported
from nnrt_hdi.tensor import data_type_of

AnyDType = np.dtype[Any]
Providers = Sequence[tuple[str, Mapping[str, str]]]

# The highest one in which ONNX Runtime's optimizations of quantized models don't break UINT8 ones.
OPSET = 20
OPSETS = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
IR_VERSION = 10
QUIET = 4  # Severity of log messages: only fatal ones.


def names(text: str) -> frozenset[str]:
    """Names of ONNX operators, as a set."""
    return frozenset(text.split())


# Types that hold every element of another, in the order to try them.
_WIDER = {
    "bool": ("uint8", "int32", "float32"),
    "int8": ("int32", "int64", "float32"),
    "uint8": ("int32", "int64", "float32"),
    "int16": ("int32", "int64", "float32"),
    "uint16": ("int32", "int64", "float32"),
    "int32": ("int64", "float64"),
    "uint32": ("int64", "float64"),
    "uint64": ("int64",),
    "float16": ("float32",),
}
# Results are elements of the operands, or say how these compare: integers may be real numbers on the way.
_SELECTS = names(
    """
    ArgMax Concat Equal Expand Gather GatherND Greater GreaterOrEqual Less LessOrEqual Max MaxPool Min Pad ReduceMax
    ReduceMin Resize ScatterND Slice Split Tile TopK Transpose Where
    """
)
# Kernels that load, and then say that they don't support it.
_EMPTY = frozenset({("LSTM", np.dtype(np.float64))})
# What doesn't depend on which numbers the bits of an integer stand for: UINT64 may be INT64 on the way.
_OF_BITS = names(
    """
    Add Concat Equal Expand Gather GatherND MatMul Mul Neg Pad ReduceProd ReduceSum ReduceSumSquare Resize ScatterND
    Slice Split Sub Tile Transpose Where
    """
)


def widened(op_type: str, dtypes: Sequence[AnyDType | None], dtype: AnyDType, wide: AnyDType) -> list[AnyDType | None]:
    """The types of operands where those of one type are cast to another; the condition of a choice stays BOOL."""
    return [
        wide if known is not None and known == dtype and not (op_type == "Where" and position == 0) else known
        for position, known in enumerate(dtypes)
    ]


class Kernels:
    """The kernels of a session's providers."""

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._known: dict[tuple[str, tuple[str, ...], tuple[AnyDType | None, ...]], bool] = {}
        self._lock = threading.Lock()

    def type_for(
        self,
        op_type: str,
        dtypes: Sequence[AnyDType | None],
        dtype: AnyDType,
        attrs: Mapping[str, Any],
        outputs: int = 1,
    ) -> AnyDType:
        """The type to compute an operator in whose operands have these types: `dtype`, if there is a kernel for it,
        else one that holds its elements. Raises Unsupported where there is none.
        """
        if (op_type, dtype) not in _EMPTY and self._has(op_type, dtypes, attrs, outputs):
            return dtype
        for candidate in _WIDER.get(dtype.name, ()):
            if (dtype.name, candidate) == ("uint64", "int64") and op_type not in _OF_BITS:
                continue
            if dtype.kind in "iub" and candidate.startswith("float") and op_type not in _SELECTS:
                continue
            wide: AnyDType = np.dtype(candidate)
            if self._has(op_type, widened(op_type, dtypes, dtype, wide), attrs, outputs):
                return wide
        raise Unsupported(f"ONNX Runtime has no {op_type} kernel for {data_type_of(dtype).name}")

    def _has(self, op_type: str, dtypes: Sequence[AnyDType | None], attrs: Mapping[str, Any], outputs: int) -> bool:
        variant = tuple(sorted(value for value in attrs.values() if isinstance(value, str)))
        key = op_type, variant, tuple(dtypes)
        if (known := self._known.get(key)) is not None:
            return known
        with self._lock:
            if key not in self._known:
                self._known[key] = self._loads(op_type, dtypes, attrs, outputs)
            return self._known[key]

    def _loads(self, op_type: str, dtypes: Sequence[AnyDType | None], attrs: Mapping[str, Any], outputs: int) -> bool:
        names = [f"x{number}" if dtype else "" for number, dtype in enumerate(dtypes)]
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), None)
            for name, dtype in zip(names, dtypes, strict=True)
            if dtype
        ]
        results = [f"y{number}" for number in range(outputs)]
        node = helper.make_node(op_type, names, results, **attrs)
        graph = helper.make_graph([node], "kernel", inputs, [*map(helper.make_empty_tensor_value_info, results)])
        model = helper.make_model(graph, opset_imports=OPSETS, ir_version=IR_VERSION)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = QUIET
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=list(self._providers), enable_fallback=0
            )
        except Exception:
            return False
        return True
