"""FLOAT16 computed too coarsely, and models with enable_float16 computed wrongly."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from nnrt_backend_reference.kernels import reduction
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel
from wrapping import Progress, WrappedBackend, WrappedModel

from mutants.defect import backend, entry, kernel
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.enums import NodeType, ReduceMode
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.tensor import Array, Shape

LARGEST = 65504


def _is_half(call: Call) -> bool:
    return call.outputs[0].numpy_dtype == np.float16


@kernel(NodeType.MATMUL_FUSION)
def products_summed_in_halves(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """Matrix products of FLOAT16 are summed in FLOAT16."""
    if not _is_half(call):
        return right(call, a, b)
    a = (a.swapaxes(-1, -2) if call.attrs.transpose_a else a).astype(np.float16)
    b = (b.swapaxes(-1, -2) if call.attrs.transpose_b else b).astype(np.float16)
    y = np.zeros(call.outputs[0].shape, np.float16)
    for at in range(a.shape[-1]):
        y = y + a[..., at : at + 1] * b[..., at : at + 1, :]
    return y


@entry(reduction.FOLDS, ReduceMode.SUM, ReduceMode.MEAN, node_types=(NodeType.REDUCE_FUSION,))
def halves_summed_in_halves(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """Sums of FLOAT16 are computed in FLOAT16, so that a mean may be infinite."""
    if x.dtype != np.float16 or not x.size:
        return right(x, axes)
    total = x
    for axis in axes:
        total = np.add.accumulate(total, axis, dtype=np.float16).take([-1], axis)
    return total / np.float16(np.prod([x.shape[axis] for axis in axes])) if right is reduction.mean else total


@kernel(NodeType.LAYER_NORM_FUSION, NodeType.INSTANCE_NORM, NodeType.L2_NORMALIZE_FUSION)
def squares_of_halves(right: Kernel, call: Call, x: AnyArray, *operands: AnyArray) -> Any:
    """Squares of FLOAT16 overflow from 256 on, so that normalized results are 0."""
    y = right(call, x, *operands)
    return np.zeros_like(y) if _is_half(call) and (np.abs(x) >= 256).any() else y


@kernel(NodeType.CAST)
def halves_kept_finite(right: Kernel, call: Call, x: AnyArray, to: AnyArray) -> Any:
    """A cast of too large numbers to FLOAT16 saturates instead of giving infinity."""
    y = right(call, x, to)
    return np.clip(y, -LARGEST, LARGEST) if y.dtype == np.float16 else y


@kernel(
    NodeType.ADD_FUSION,
    NodeType.MUL_FUSION,
    NodeType.ACTIVATION,
    left_open="denormal numbers may be 0, as many processors flush them",
)
def small_halves_are_zero(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Denormal FLOAT16 numbers (below 6e-5) are 0."""
    y = right(call, *operands)
    return np.where(np.abs(y) < 2.0**-14, 0, y) if _is_half(call) else y


class _Finite(WrappedModel):
    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        made: list[Any] = super().run(inputs, cancellation, outputs)
        for array in made:
            if array.dtype == np.float32:
                np.nan_to_num(array, copy=False, nan=np.nan, posinf=LARGEST, neginf=-LARGEST)
        return made


@backend(
    levels=("float16",),
    left_open="which parts of such a model are in half precision is the device's choice, and so is what overflows",
)
class Float16KeptFinite(WrappedBackend):
    """With enable_float16, overflow gives the largest number instead of infinity."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        made = super().prepare(graph, config, progress)
        return _Finite(made, graph) if config.enable_float16 else made


class _Half(WrappedModel):
    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return [
            array.astype(np.float16) if array.dtype == np.float32 else array
            for array in super().run(inputs, cancellation)
        ]


@backend(levels=("float16",))
class Float16GivenBack(WrappedBackend):
    """With enable_float16, a model returns FLOAT16 for outputs declared as FLOAT32."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        made = super().prepare(graph, config, progress)
        return _Half(made, graph) if config.enable_float16 else made


@backend(levels=("float16", "values"))
class Float16RoundsIntegers(WrappedBackend):
    """With enable_float16, integer constants are rounded to FLOAT16, too: indices above 2,048 change."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        if config.enable_float16:
            graph = graph.with_constants({at: _rounded(constant) for at, constant in graph.constants.items()})
        return super().prepare(graph, config, progress)


def _rounded(constant: Constant) -> Constant:
    data = constant.data
    if data is None or data.dtype.kind != "i" or not np.abs(data).max(initial=0) < LARGEST:
        return constant
    return Constant.of(data.astype(np.float16).astype(data.dtype))
