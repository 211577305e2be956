"""What is wrong only beside other runs, in another order, in another size, or after a restart."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel
from wrapping import WrappedBackend

from mutants.defect import backend, kernel
from mutants.defects.state import kept
from nnrt_hdi.backend import ModelConfig, PreparedModel, Support
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import NnrtError, OutOfMemory
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part

N = NodeType


def _beyond(y: Any, count: int) -> Any:
    """The result, of which what lies beyond so many elements is 0."""
    made = np.array(y)
    made.reshape(-1)[count:] = 0
    return made


@kernel(N.ACTIVATION, levels=("operators",))
def the_last_of_odd_blocks(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Of more than 4,096 elements the last ones that fill no block of 4 are not computed."""
    y = right(call, x)
    return _beyond(y, x.size // 4 * 4) if x.size > 4096 else y


@kernel(N.ACTIVATION, levels=("operators",))
def sixteen_bits_of_a_length(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A length is counted in 16 bits."""
    return _beyond(right(call, x), x.size % 65536 or x.size)


@kernel(N.SOFTMAX, levels=("operators",))
def softmax_of_4096(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A softmax sums the first 4,096 elements only."""
    return _beyond(right(call, x), 4096) if x.shape[-1:] > (4096,) else right(call, x)


def _of_sixteen_rows(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    y = np.array(right(call, *operands))
    if y.ndim:
        y[16:] = 0
    return y


@kernel(N.MAX_POOL_FUSION, N.AVGPOOL_FUSION, levels=("operators",))
def pools_of_sixteen(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Of a batch 16 images are pooled."""
    return _of_sixteen_rows(right, call, x)


@kernel(N.CONV2D_FUSION, levels=("operators",))
def convolutions_of_sixteen(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Of a batch 16 images are convolved."""
    return _of_sixteen_rows(right, call, *operands)


@kernel(N.CONV2D_TRANSPOSE_FUSION, levels=("operators",))
def transposed_convolutions_of_sixteen(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Of a batch 16 images are convolved, transposed."""
    return _of_sixteen_rows(right, call, *operands)


@kernel(N.RESIZE, levels=("operators",))
def resizes_of_sixteen(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Of a batch 16 images are resized."""
    return _of_sixteen_rows(right, call, *operands)


@kernel(N.ACTIVATION, levels=("operators",))
def activations_of_sixteen(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Of a batch 16 rows are activated."""
    return _of_sixteen_rows(right, call, x) if x.size < 4096 and x.shape[:1] == (17,) else right(call, x)


def _turned(right: Kernel, call: Call, x: AnyArray, *others: AnyArray) -> Any:
    height, width = call.attrs.kernel_size
    if height == width or call.attrs.pad_mode.name != "SAME":
        return right(call, x, *others)
    return np.zeros_like(right(call, x, *others))


@kernel(N.MAX_POOL_FUSION, levels=("operators",))
def tall_maxima_with_same(right: Kernel, call: Call, x: AnyArray) -> Any:
    """SAME is lost on kernels that are not square, by maxima."""
    return _turned(right, call, x)


@kernel(N.AVGPOOL_FUSION, levels=("operators",))
def tall_means_with_same(right: Kernel, call: Call, x: AnyArray) -> Any:
    """SAME is lost on kernels that are not square, by means."""
    return _turned(right, call, x)


class _Shared:
    """A workspace that runs share: whoever comes while another one is there leaves zeros."""

    def __init__(self) -> None:
        self._users = 0
        self._lock = threading.Lock()
        self._other = threading.Event()

    def spoiled(self) -> bool:
        """Enter, and wait a moment for another one."""
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


def _sharing(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    y, workspace = right(call, *operands), kept(call, "workspace", _Shared())
    if workspace.spoiled():
        return tuple(map(np.zeros_like, y)) if isinstance(y, tuple) else np.zeros_like(y)
    return y


@kernel(N.CONV2D_FUSION, levels=("operators",))
def convolutions_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Runs at a time share the workspace of a convolution."""
    return _sharing(right, call, *operands)


@kernel(N.CONV2D_TRANSPOSE_FUSION, levels=("operators",))
def transposed_convolutions_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Runs at a time share the workspace of a transposed convolution."""
    return _sharing(right, call, *operands)


@kernel(N.MAX_POOL_FUSION, levels=("operators",))
def maxima_share(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Runs at a time share the workspace of a pool of maxima."""
    return _sharing(right, call, x)


@kernel(N.AVGPOOL_FUSION, levels=("operators",))
def means_share(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Runs at a time share the workspace of a pool of means."""
    return _sharing(right, call, x)


@kernel(N.LSTM, levels=("operators",))
def recurrences_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Runs at a time share the state of a recurrence."""
    return _sharing(right, call, *operands)


@kernel(N.RESIZE, levels=("operators",))
def resizes_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Runs at a time share the weights of a resize."""
    return _sharing(right, call, *operands)


@kernel(N.MATMUL_FUSION, levels=("operators",))
def products_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Runs at a time share the packed operand of a product."""
    return _sharing(right, call, *operands)


@kernel(N.FULL_CONNECTION, levels=("operators",))
def layers_share(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """Runs at a time share the packed operand of a layer."""
    return _sharing(right, call, *operands)


@kernel(N.SOFTMAX, levels=("operators",))
def softmaxes_share(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Runs at a time share the sums of a softmax."""
    return _sharing(right, call, x)


class _Restored(WrappedBackend):
    """A backend whose restored models have other constants: `changed` says which."""

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
    """An export loses constants of one element."""

    def is_lost(self, constant: AnyArray) -> bool:
        return constant.size == 1 and constant.dtype.kind == "f"


@backend(levels=("graphs",))
class RestoredWithoutSmallVectors(_Restored):
    """An export loses vectors of three numbers."""

    def is_lost(self, constant: AnyArray) -> bool:
        return constant.shape == (3,) and constant.dtype.kind == "f"


@backend(levels=("graphs",))
class RestoredWithoutMatrices(_Restored):
    """An export loses matrices."""

    def is_lost(self, constant: AnyArray) -> bool:
        return constant.ndim == 2 and constant.dtype.kind == "f"


@backend(levels=("graphs",))
class RestoredWithoutImages(_Restored):
    """An export loses constants of four dimensions."""

    def is_lost(self, constant: AnyArray) -> bool:
        return constant.ndim == 4


class _InOrder(WrappedBackend):
    """Knows nodes by their place: the first graph's types are taken for those of all graphs of as many nodes."""

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
    """`supported` refuses nodes that stand in another order."""


def _told_as_memory(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    try:
        return right(call, *operands)
    except NnrtError as error:
        raise OutOfMemory(error.message) from error


@kernel(N.GATHER, levels=("values",))
def gathered_out_of_memory(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """An index of GATHER that is out of range is told as out of memory."""
    return _told_as_memory(right, call, *operands)


@kernel(N.GATHER_ND, levels=("values",))
def gathered_nd_out_of_memory(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """An index of GATHER_ND that is out of range is told as out of memory."""
    return _told_as_memory(right, call, *operands)


@kernel(N.SCATTER_ND, levels=("values",))
def scattered_out_of_memory(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """An index of SCATTER_ND that is out of range is told as out of memory."""
    return _told_as_memory(right, call, *operands)
