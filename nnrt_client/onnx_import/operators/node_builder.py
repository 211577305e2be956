"""Builder that an operator's function receives: the current node, and the model that gets its operations."""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
from onnx import TensorProto, helper

from nnrt_client.enums import DataType, Format, FuseType, OperationType
from nnrt_client.model.model import Model
from nnrt_client.onnx_import.operators.operation_builder import Operand, OperationBuilder
from nnrt_client.onnx_import.shapes.dims import Dims, Number, shape_of
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Dtype, Value, data_type_of
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.tensor import NUMPY_DTYPES

MadeT = TypeVar("MadeT")

# Most elements of a constant that the import adds for a node.
_MOST_ELEMENTS = 1 << 26


class NodeBuilder(OperationBuilder):
    """Builder of the operations that one node becomes.

    Attributes:
        type: the node's operator.
        outputs: for each output of the node, whether another node reads it.
        activation: function that fuses a Relu or Clip(0, 6) that directly follows, and returns it.
        quant: quantization of the result, if the node is computed on quantized tensors.
    """

    def __init__(
        self,
        model: Model,
        type: str,
        name: str,
        opset: int,
        outputs: Sequence[bool],
        fuse: Callable[[], FuseType] = lambda: FuseType.NONE,
        quant: QuantParam | None = None,
        shared: dict[Hashable, Any] | None = None,
    ) -> None:
        super().__init__(model, name)
        self._shared = {} if shared is None else shared
        self.type = type
        self.opset = opset
        self.outputs = tuple(outputs)
        self.activation = fuse
        self.quant = quant

    def nchw(self, x: Value) -> Value:
        """Return x with the format NCHW: its channels are dimension 1."""
        if x.rank < 3 or x.tensor.desc.format is Format.NCHW:
            return x
        if x.is_constant:
            assert x.array is not None
            return self.constant(x.array, format=Format.NCHW, quant=x.quantized.param if x.quantized else None)
        output = TensorDesc(data_type_of(x.dtype), x.tensor.desc.shape, Format.NCHW)
        return self.apply(OperationType.RESHAPE, x, np.zeros(x.rank, np.int64), output=output, dims=x.dims)

    def dtype(self, number: int) -> Dtype:
        """Return the dtype of one of ONNX's data type numbers. Raise Unsupported if NNRt doesn't have it."""
        for known in NUMPY_DTYPES.values():
            if helper.np_dtype_to_tensor_dtype(known) == number:
                return known
        name = TensorProto.DataType.Name(number) if number in TensorProto.DataType.values() else f"type {number}"
        return refuse(f"it gives {name}, which is no data type of NNRt")

    def ints(self, name: str, x: Value) -> list[int]:
        """Return the elements of an input. Raise Unsupported if they are known only in a run."""
        if x.ints is None:
            refuse(f"its {name} {x} is known only in a run")
        return x.ints

    def once(self, key: Hashable, make: Callable[[], MadeT]) -> MadeT:
        """Return what `make` returned for the first node of the import that asked with this key."""
        if key not in self._shared:
            self._shared[key] = make()
        made: MadeT = self._shared[key]
        return made

    def size(self, x: Value, axis: int) -> Value:
        """Return a dimension as INT64 of rank 0: a constant, or computed in a run."""
        dim = x.dims[axis]
        if isinstance(dim, int):
            return self.number(dim, np.dtype(np.int64))
        at = np.array(axis % x.rank)
        return self.once(("size", dim), lambda: self.apply(OperationType.GATHER, self.shape(x), at, np.array(0)))

    def shape(self, x: Value) -> Value:
        """Return all dimensions as a vector of INT64 that a run computes."""
        return self.apply(OperationType.SHAPE, x, output=TensorDesc(DataType.INT64, (x.rank,)))

    def shape_vector(self, x: Value) -> Value:
        """Return all dimensions as a vector of INT64: a constant if all are known, else computed in a run."""
        return self.shape(x) if -1 in x.shape else self.constant(np.array(x.shape, np.int64))

    def full(self, dims: Dims, value: float, dtype: Dtype) -> Value:
        """Return a constant whose elements are all `value`."""
        require_moderate(dims)
        return self.constant(np.full(shape_of(dims), value, dtype))

    def filled(self, number: Operand, dtype: Dtype, shape: Value, dims: Dims | None = None) -> Value:
        """Return a tensor filled with one number. A run may compute `shape`; `dims` are its sizes as far as known."""
        if dims is None and shape.elements is not None:
            dims = tuple(shape.elements.tolist())
        output = None if dims is None else TensorDesc(data_type_of(dtype), shape_of(dims))
        return self.apply(OperationType.FILL, number, shape, output=output, dims=dims)

    def count_up(self, count: Value) -> Value:
        """Return the INT64 numbers 0, 1, ..., count - 1. `count` is a vector with one element."""
        zeros = self.filled(self.number(0, np.dtype(np.float32)), np.dtype(np.float32), count)
        # TOP_K orders equal elements by their index.
        _, order = self.apply_to_several(OperationType.TOP_K, zeros, self.cast(count, np.dtype(np.int64)))
        return self.cast(order, np.dtype(np.int64))

    def indices(self, x: Value, axis: int) -> Value:
        """Return the INT64 indices 0, 1, 2, ... of a dimension of x."""
        size = x.dims[axis]
        if isinstance(size, int):
            require_moderate((size,))
            return self.once(("indices", size), lambda: self.constant(np.arange(size)))
        return self.places(size, lambda: self.size(x, axis))

    def places(self, dim: Number, make: Callable[[], Value]) -> Value:
        """Return the INT64 numbers 0, 1, ..., dim - 1. `make` computes the dimension in a run."""

        def count() -> Value:
            places = self.count_up(self.reshape(make(), (1,)))
            places.dims = (dim,)
            return places

        return self.once(("indices", dim), count)


def require_moderate(dims: Dims) -> None:
    """Raise Unsupported for a constant of unknown dimensions, or of too many elements."""
    shape = shape_of(dims)
    if -1 in shape or math.prod(shape) > _MOST_ELEMENTS:
        refuse(
            f"it needs a constant of shape {list(shape)}; use known dimensions, and at most {_MOST_ELEMENTS} elements"
        )
