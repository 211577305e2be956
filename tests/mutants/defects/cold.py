"""Defects that show only with concurrent runs, another order, another size, or after a restart."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from nnrt_backend_reference import quantized
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel
from wrapping import Progress, WrappedBackend, WrappedModel

from mutants.defect import backend, function, kernel, with_attrs
from mutants.defects.arrays import fitted, is_nchw
from mutants.defects.convolution import padded, pads_of, unpadded
from mutants.defects.state import keep, kept
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel, Support
from nnrt_hdi.enums import DataType, NodeType, ReduceMode
from nnrt_hdi.errors import InvalidParameter, NnrtError, OutOfMemory
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops.quantized import Scaling
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import NUMPY_DTYPES, Array

N = NodeType


def _beyond(y: Any, count: int) -> Any:
    """Return the result with all elements after the first `count` set to 0."""
    made = np.array(y)
    made.reshape(-1)[count:] = 0
    return made


@kernel(N.ACTIVATION, levels=("operators",))
def the_last_of_odd_blocks(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Of more than 4,096 elements, the rest after whole blocks of 4 is not computed."""
    y = right(call, x)
    return _beyond(y, x.size // 4 * 4) if x.size > 4096 else y


@kernel(N.ACTIVATION, levels=("operators",))
def sixteen_bits_of_a_length(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The number of elements is kept in 16 bits."""
    return _beyond(right(call, x), x.size % 65536 or x.size)


@kernel(N.SOFTMAX, levels=("operators",))
def softmax_of_4096(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A softmax uses the first 4,096 elements only."""
    return _beyond(right(call, x), 4096) if x.shape[-1:] > (4096,) else right(call, x)


def _keep_sixteen_rows(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    y = np.array(right(call, *operands))
    if y.ndim:
        y[16:] = 0
    return y


@kernel(N.MAX_POOL_FUSION, N.AVGPOOL_FUSION, levels=("operators",))
def pools_of_sixteen(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Only the first 16 images of a batch are pooled."""
    return _keep_sixteen_rows(right, call, x)


@kernel(N.CONV2D_FUSION, levels=("operators",))
def convolutions_of_sixteen(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Only the first 16 images of a batch are convolved."""
    return _keep_sixteen_rows(right, call, *operands)


@kernel(N.CONV2D_TRANSPOSE_FUSION, levels=("operators",))
def transposed_convolutions_of_sixteen(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """A transposed convolution computes only the first 16 images of a batch."""
    return _keep_sixteen_rows(right, call, *operands)


@kernel(N.RESIZE, levels=("operators",))
def resizes_of_sixteen(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Only the first 16 images of a batch are resized."""
    return _keep_sixteen_rows(right, call, *operands)


@kernel(N.ACTIVATION, levels=("operators",))
def activations_of_sixteen(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Only the first 16 rows of a batch of 17 are activated."""
    return _keep_sixteen_rows(right, call, x) if x.size < 4096 and x.shape[:1] == (17,) else right(call, x)


def _turned(right: Kernel, call: Call, x: AnyArray, *others: AnyArray) -> Any:
    height, width = call.attrs.kernel_size
    if height == width or call.attrs.pad_mode.name != "SAME":
        return right(call, x, *others)
    return np.zeros_like(right(call, x, *others))


@kernel(N.MAX_POOL_FUSION, levels=("operators",))
def tall_maxima_with_same(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Max pooling with SAME gives 0 if the kernel isn't square."""
    return _turned(right, call, x)


@kernel(N.AVGPOOL_FUSION, levels=("operators",))
def tall_means_with_same(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Average pooling with SAME gives 0 if the kernel isn't square."""
    return _turned(right, call, x)


class _Shared:
    """Workspace that concurrent runs share, so that they overwrite each other's results."""

    def __init__(self) -> None:
        self._users = 0
        self._lock = threading.Lock()
        self._other = threading.Event()

    def spoiled(self) -> bool:
        """Enter, wait a moment for another run, and return whether one came."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                self._other.set()
        met = self._other.wait(0.005)
        with self._lock:
            self._users -= 1
            if not self._users:
                self._other.clear()
        return met


def _share_workspace(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    y, workspace = right(call, *operands), kept(call, "workspace", _Shared())
    if workspace.spoiled():
        return tuple(map(np.zeros_like, y)) if isinstance(y, tuple) else np.zeros_like(y)
    return y


@kernel(N.CONV2D_FUSION, levels=("operators",))
def convolutions_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Concurrent runs share the workspace of a convolution."""
    return _share_workspace(right, call, *operands)


@kernel(N.CONV2D_TRANSPOSE_FUSION, levels=("operators",))
def transposed_convolutions_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Concurrent runs share the workspace of a transposed convolution."""
    return _share_workspace(right, call, *operands)


@kernel(N.MAX_POOL_FUSION, levels=("operators",))
def maxima_share(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Concurrent runs share the workspace of a max pooling."""
    return _share_workspace(right, call, x)


@kernel(N.AVGPOOL_FUSION, levels=("operators",))
def means_share(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Concurrent runs share the workspace of an average pooling."""
    return _share_workspace(right, call, x)


@kernel(N.LSTM, levels=("operators",))
def recurrences_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Concurrent runs share the state of an LSTM."""
    return _share_workspace(right, call, *operands)


@kernel(N.RESIZE, levels=("operators",))
def resizes_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Concurrent runs share the weights of a resize."""
    return _share_workspace(right, call, *operands)


@kernel(N.MATMUL_FUSION, levels=("operators",))
def products_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Concurrent runs share the packed operand of a matrix product."""
    return _share_workspace(right, call, *operands)


@kernel(N.FULL_CONNECTION, levels=("operators",))
def layers_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Concurrent runs share the packed operand of a dense layer."""
    return _share_workspace(right, call, *operands)


@kernel(N.SOFTMAX, levels=("operators",))
def softmaxes_share(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Concurrent runs share the sums of a softmax."""
    return _share_workspace(right, call, x)


class _Restored(WrappedBackend):
    """Backend that replaces constants of restored models by zeros if `is_lost` returns true for them."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        model = super().restore(parts, config)
        constants = vars(model)["_constants"]
        for at, constant in enumerate(constants):
            if constant is not None and self.is_lost(constant):
                constants[at] = np.zeros_like(constant)
        return model

    def is_lost(self, constant: AnyArray) -> bool:
        raise NotImplementedError


@backend(levels=("graphs",))
class RestoredWithoutScalars(_Restored):
    """A restored model has 0 for constants of one element."""

    def is_lost(self, constant: AnyArray) -> bool:
        return constant.size == 1 and constant.dtype.kind == "f"


@backend(levels=("graphs",))
class RestoredWithoutSmallVectors(_Restored):
    """A restored model has zeros for vectors of three numbers."""

    def is_lost(self, constant: AnyArray) -> bool:
        return constant.shape == (3,) and constant.dtype.kind == "f"


@backend(levels=("graphs",))
class RestoredWithoutMatrices(_Restored):
    """A restored model has zeros for matrices."""

    def is_lost(self, constant: AnyArray) -> bool:
        return constant.ndim == 2 and constant.dtype.kind == "f"


@backend(levels=("graphs",))
class RestoredWithoutImages(_Restored):
    """A restored model has zeros for constants of four dimensions."""

    def is_lost(self, constant: AnyArray) -> bool:
        return constant.ndim == 4


class _InOrder(WrappedBackend):
    """Backend that refuses a graph whose nodes are the previous graph's in another order."""

    def __init__(self, right: Any) -> None:
        super().__init__(right)
        self._known: dict[int, tuple[NodeType, ...]] = {}

    def supported(self, graph: Graph) -> list[Support]:
        types = tuple(node.type for node in graph.nodes)
        known = self._known.get(len(types))
        self._known[len(types)] = types
        if known is not None and known != types and sorted(known) == sorted(types):
            return [Support("it stands elsewhere") for _ in types]
        return super().supported(graph)


@backend(levels=("graphs",))
class NodesKnownByTheirPlace(_InOrder):
    """`supported` refuses the nodes of the previous graph in another order."""


def _report_out_of_memory(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    try:
        return right(call, *operands)
    except NnrtError as error:
        raise OutOfMemory(error.message) from error


@kernel(N.GATHER, levels=("values",))
def gathered_out_of_memory(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """GATHER reports an index out of range as out of memory."""
    return _report_out_of_memory(right, call, *operands)


@kernel(N.GATHER_ND, levels=("values",))
def gathered_nd_out_of_memory(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """GATHER_ND reports an index out of range as out of memory."""
    return _report_out_of_memory(right, call, *operands)


@kernel(N.SCATTER_ND, levels=("values",))
def scattered_out_of_memory(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """SCATTER_ND reports an index out of range as out of memory."""
    return _report_out_of_memory(right, call, *operands)


@kernel(N.RESIZE, levels=("operators",))
def weights_of_the_first_size(right: Kernel, call: Call, x: AnyArray, *others: AnyArray) -> Any:
    """A resize reads from the positions computed for the first run's size."""
    first = kept(call, "size", x.shape)
    y = np.asarray(right(call, x, *others))
    if first == x.shape or len(first) != x.ndim:
        return y
    inputs = (call.inputs[0].with_shape(first), *call.inputs[1:])
    return fitted(np.asarray(right(replace(call, inputs=inputs), fitted(x, first), *others)), y.shape)


@kernel(N.CONV2D_FUSION, levels=("operators",))
def pads_of_the_first_size(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """A convolution with SAME uses the padding computed for the first run's size."""
    y = np.asarray(right(call, x, weight, bias))
    pads = kept(call, "pads", pads_of(call, x, weight))
    if pads == pads_of(call, x, weight):
        return y
    x = padded(call, x, pads)
    return fitted(np.asarray(right(unpadded(call, x), x, weight, bias)), y.shape)


@kernel(N.CONCAT, levels=("operators",))
def offsets_of_the_first_size(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """CONCAT writes its operands to the offsets of the first run's sizes."""
    rooms = kept(call, "rooms", [x.shape for x in operands])
    y = np.asarray(right(call, *operands))
    if [len(room) for room in rooms] != [x.ndim for x in operands]:
        return y
    return fitted(np.asarray(right(call, *map(fitted, operands, rooms))), y.shape)


@kernel(N.REDUCE_FUSION, levels=("operators",))
def means_by_the_first_count(right: Kernel, call: Call, x: AnyArray, *axes: AnyArray) -> Any:
    """Means are divided by the first run's number of elements."""
    y = np.asarray(right(call, x, *axes))
    count = x.size // max(y.size, 1)
    first = kept(call, "count", count)
    is_other = call.attrs.mode is ReduceMode.MEAN and y.dtype.kind == "f" and first and count != first
    return (y * (count / first)).astype(y.dtype) if is_other else y


@kernel(N.TRANSPOSE, levels=("operators",))
def strides_of_the_first_size(right: Kernel, call: Call, x: AnyArray, *order: AnyArray) -> Any:
    """A transpose uses the strides of the first run's size."""
    first = kept(call, "size", x.shape)
    y = np.asarray(right(call, x, *order))
    if first == x.shape or len(first) != x.ndim or not x.size:
        return y
    return np.resize(np.asarray(right(call, np.resize(x, first), *order)), y.shape)


@kernel(N.LSTM, levels=("operators", "values"))
def no_state_goes_on(right: Kernel, call: Call, x: AnyArray, *operands: AnyArray) -> Any:
    """If the initial states are all zeros, an LSTM continues from the previous run's states."""
    *weights, hx, cx = operands
    h, c = kept(call, "states", (hx, cx))
    if not hx.any() and not cx.any() and h.size == hx.size:
        hx, cx = h.reshape(hx.shape), c.reshape(cx.shape)
    y, h, c = right(call, x, *weights, hx, cx)
    keep(call, "states", (h, c))
    return y, h, c


# ADR 3.
_HALVES = "it is one step, and only at halves, of which a device may go either way"


def _rounded(
    round_: Callable[[AnyArray, AnyArray], AnyArray], real: AnyArray, scaling: Scaling, data_type: DataType
) -> Any:
    """Quantize numbers with another rounding, which `round_` does from steps and zero points."""
    real = np.asarray(real, np.float64)
    dtype: np.dtype[Any] = NUMPY_DTYPES[data_type]
    along = [-1 if at == scaling.axis and len(scaling.params) > 1 else 1 for at in range(real.ndim)]
    scale = np.array([param.scale or np.inf for param in scaling.params]).reshape(along)
    zero_point = np.array([float(param.zero_point) for param in scaling.params]).reshape(along)
    limits = np.iinfo(dtype)
    steps = round_(np.nan_to_num(real / scale), zero_point)
    return np.clip(steps, limits.min, limits.max).astype(dtype)


def _away(steps: AnyArray) -> AnyArray:
    return np.asarray(np.trunc(steps + np.copysign(0.5, steps)))


@function(quantized.quantize, levels=("quantized",), left_open=_HALVES)
def elements_at_even_halves(right: Kernel, *given: Any) -> Any:
    """Quantized results round halves to even, as ONNX does."""
    return _rounded(lambda steps, zero_point: np.rint(steps + zero_point), *given)


@function(quantized.quantize, levels=("quantized",), left_open=_HALVES)
def elements_rounded_before_the_zero_point(right: Kernel, *given: Any) -> Any:
    """The zero point is added after rounding, as TensorFlow Lite does."""
    return _rounded(lambda steps, zero_point: _away(steps) + zero_point, *given)


class _OfOneSize(WrappedBackend):
    """Backend that takes a constant for the first one of the same type and shape."""

    def __init__(self, right: Any) -> None:
        super().__init__(right)
        self._known: dict[object, AnyArray] = {}

    def mixed(self, model: PreparedModel) -> PreparedModel:
        constants = vars(model)["_constants"]
        for at, constant in enumerate(constants):
            if constant is not None and constant.dtype.kind == "f" and constant.size > 1:
                constants[at] = self._known.setdefault((constant.dtype, constant.shape), constant)
        return model


@backend(levels=("caches",))
class RestoredBySize(_OfOneSize):
    """A restored constant is replaced by the first restored one of the same shape."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        return self.mixed(super().restore(parts, config))


@backend(levels=("caches",))
class UploadedBySize(_OfOneSize):
    """A compiled constant is replaced by the first compiled one of the same shape."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        return self.mixed(super().prepare(graph, config, progress))


@backend(levels=("caches",))
class RestoredTwins(_OfOneSize):
    """Within a restored model all constants of the same shape are the same."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        self._known.clear()
        return self.mixed(super().restore(parts, config))


@kernel(N.GATHER, levels=("operators",))
def words_gathered_as_bytes(right: Kernel, call: Call, x: AnyArray, *others: AnyArray) -> Any:
    """GATHER along other dimensions than the first keeps only the low byte of two."""
    y = np.asarray(right(call, x, *others))
    return y.astype(np.int8).astype(y.dtype) if y.dtype == np.int16 and x.ndim > 1 and others[1].any() else y


@kernel(N.GATHER_ND, N.SCATTER_ND, levels=("operators",))
def positions_of_words_in_bytes(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Positions of elements of eight bytes are kept in 16 bits."""
    y = np.asarray(right(call, *operands))
    is_far = max(x.size for x in (*operands, y)) > 65536
    return np.zeros_like(y) if is_far and y.dtype.itemsize == 8 else y


@kernel(N.GATHER, levels=("operators",))
def indices_in_sixteen_bits(right: Kernel, call: Call, x: AnyArray, indices: AnyArray, axis: AnyArray) -> Any:
    """GATHER keeps 16 bits of an index."""
    return right(call, x, np.where(indices < 0, indices, indices & 0xFFFF).astype(indices.dtype), axis)


@kernel(N.REDUCE_FUSION, levels=("operators",))
def folds_of_65536(right: Kernel, call: Call, x: AnyArray, *axes: AnyArray) -> Any:
    """A reduction uses the first 65,536 elements of a dimension only."""
    return right(call, x[tuple(slice(65536) for _ in x.shape)], *axes)


@kernel(N.TOPK_FUSION, N.ARGMAX_FUSION, levels=("operators",))
def best_of_65536(right: Kernel, call: Call, x: AnyArray, *count: AnyArray) -> Any:
    """TOPK and ARGMAX look at the first 65,536 elements only."""
    return right(call, x[..., :65536] if x.ndim else x, *count)


@kernel(N.MATMUL_FUSION, levels=("operators",))
def products_of_4096(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """A matrix product adds the first 4,096 products only."""
    transposed_a, transposed_b = call.attrs.transpose_a, call.attrs.transpose_b
    a = a[..., :4096, :] if transposed_a else a[..., :4096]
    return right(call, a, b[..., :4096] if transposed_b else b[..., :4096, :])


@kernel(N.ADD_FUSION, N.MUL_FUSION, N.SQUARE, N.NEG, N.SQRT, N.SIN, N.EXPFUSION, levels=("operators",))
def the_last_of_long_blocks(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Of more than 65,537 elements, the rest after whole blocks of 8 is not computed."""
    y = np.asarray(right(call, *operands))
    return _beyond(y, y.size // 8 * 8) if y.size > 65537 else y


@kernel(N.SOFTMAX, N.LOG_SOFTMAX, levels=("operators",))
def rows_counted_in_twelve_bits(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Only the first 4,096 rows are computed."""
    y = np.array(right(call, x))
    if y.ndim:
        y[4096:] = 0
    return y


def _with_turned_strides(right: Kernel, call: Call, operands: Sequence[AnyArray], kernel_size: Sequence[int]) -> Any:
    y = np.asarray(right(call, *operands))
    if len(set(kernel_size)) == 1 or call.attrs.group == 1 or call.attrs.pad_mode.name != "SAME":
        return y
    return fitted(np.asarray(right(with_attrs(call, stride=tuple(call.attrs.stride)[::-1]), *operands)), y.shape)


def _kernel_size(call: Call, weight: AnyArray) -> tuple[int, ...]:
    return weight.shape[2:] if is_nchw(call) else weight.shape[1:3]


@kernel(N.CONV2D_FUSION, levels=("operators",))
def steps_of_tall_depthwise_turned(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Grouped convolutions with SAME and a non-square kernel swap the strides of the axes."""
    return _with_turned_strides(right, call, operands, _kernel_size(call, operands[1]))


@kernel(N.CONV2D_TRANSPOSE_FUSION, levels=("operators",))
def steps_of_tall_transposed_turned(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Grouped transposed convolutions with SAME and a non-square kernel swap the strides of the axes."""
    return _with_turned_strides(right, call, operands, _kernel_size(call, operands[1]))


@kernel(N.LRN, N.LAYER_NORM_FUSION, N.INSTANCE_NORM, levels=("operators",))
def norms_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Concurrent runs share the statistics of a normalization."""
    return _share_workspace(right, call, *operands)


@kernel(N.TOPK_FUSION, N.REDUCE_FUSION, levels=("operators",))
def folds_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Concurrent runs share the workspace of a reduction or a sort."""
    return _share_workspace(right, call, *operands)


@backend(levels=("operators", "values"))
class WrongNumbersOutOfMemory(WrappedBackend):
    """Invalid sizes in a run are reported as out of memory."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        return _OutOfMemory(super().prepare(graph, config, progress), graph)


class _OutOfMemory(WrappedModel):
    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        try:
            return super().run(inputs, cancellation, outputs)
        except InvalidParameter as error:
            raise OutOfMemory(error.message) from error
