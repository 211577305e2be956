"""ONNX Runtime as engine of the lowering. It supports an operator if it loads a model of that operator."""

import threading
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime
from nnrt_onnx_lowering import Engine, IntegerTypes, Operator

Providers = Sequence[tuple[str, Mapping[str, str]]]
QUIET = 4  # The severity of log messages: only fatal ones.
AS_THEY_ARE = IntegerTypes()
# Kernels that load, and then raise an error that they don't support the type.
_EMPTY = frozenset({("LSTM", np.dtype(np.float64))})


class Kernels(Engine):
    """Kernels of a session's providers."""

    name = "ONNX Runtime"

    def __init__(
        self, providers: Providers, integers: IntegerTypes = AS_THEY_ARE, *, computes_float16: bool = False
    ) -> None:
        self.computes_float16 = computes_float16
        self.integers = integers
        self._providers = providers
        self._known: dict[tuple[object, ...], bool] = {}
        self._lock = threading.Lock()

    def takes(self, operator: Operator) -> bool:
        """Return whether an operator loads (see `Engine.takes`). Answers are cached."""
        kind = operator.kind
        if (known := self._known.get(kind)) is not None:
            return known
        with self._lock:
            if kind not in self._known:
                self._known[kind] = (operator.type, operator.operands[0]) not in _EMPTY and self._loads(operator)
            return self._known[kind]

    def _loads(self, operator: Operator) -> bool:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = QUIET
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            onnxruntime.InferenceSession(
                operator.model().SerializeToString(), options, providers=list(self._providers), enable_fallback=0
            )
        except Exception:
            return False
        return True
