"""The builder that the function of an operator works with: the node at hand, and the model that gets its operations."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto, helper

from nnrt_client.enums import DataType, Format, FuseType, OperationType
from nnrt_client.model.model import Model
from nnrt_client.onnx_import.operators.operation_builder import Operand, OperationBuilder
from nnrt_client.onnx_import.shapes.dims import Dims, shape_of
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Dtype, Value, data_type_of
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.tensor import NUMPY_DTYPES

# Of a constant that an operator is given on the way.
_MOST_ELEMENTS = 1 << 26


class NodeBuilder(OperationBuilder):
    """One node: its operator and name, and the operations it becomes.

    `outputs` says which outputs somebody uses. `fuse` takes a Relu or Clip that directly follows.
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
    ) -> None:
        super().__init__(model, name)
        self.type = type
        self.opset = opset
        self.outputs = tuple(outputs)
        self.activation = fuse
        self.quant = quant

    def nchw(self, x: Value) -> Value:
        """x, declared to have its channels in dimension 1."""
        if x.rank < 3 or x.tensor.desc.format is Format.NCHW:
            return x
        if x.is_constant:
            assert x.array is not None
            return self.constant(x.array, format=Format.NCHW, quant=x.quantized.param if x.quantized else None)
        output = TensorDesc(data_type_of(x.dtype), x.tensor.desc.shape, Format.NCHW)
        return self.apply(OperationType.RESHAPE, x, np.zeros(x.rank, np.int64), output=output, dims=x.dims)

    def dtype(self, number: int) -> Dtype:
        """The data type that ONNX has this number for. Refuses one that NNRt doesn't have."""
        for known in NUMPY_DTYPES.values():
            if helper.np_dtype_to_tensor_dtype(known) == number:
                return known
        name = TensorProto.DataType.Name(number) if number in TensorProto.DataType.values() else f"type {number}"
        return refuse(f"it gives {name}, which is no data type of NNRt")

    def ints(self, name: str, x: Value) -> list[int]:
        """The elements of an input that must be known before a run."""
        if x.ints is None:
            refuse(f"its {name} {x} is known only in a run")
        return x.ints

    def size(self, x: Value, axis: int) -> Value:
        """A dimension, as INT64 of rank 0: known only in a run if need be."""
        dim = x.dims[axis]
        if isinstance(dim, int):
            return self.number(dim, np.dtype(np.int64))
        return self.apply(OperationType.GATHER, self.shape(x), np.array(axis % x.rank), np.array(0))

    def shape(self, x: Value) -> Value:
        """All dimensions, as a vector of INT64."""
        return self.apply(OperationType.SHAPE, x, output=TensorDesc(DataType.INT64, (x.rank,)))

    def shape_vector(self, x: Value) -> Value:
        """All dimensions as a vector of INT64: a constant if they are known."""
        return self.shape(x) if -1 in x.shape else self.constant(np.array(x.shape, np.int64))

    def full(self, dims: Dims, value: float, dtype: Dtype) -> Value:
        """A constant that is the same everywhere."""
        require_moderate(dims)
        return self.constant(np.full(shape_of(dims), value, dtype))

    def filled(self, number: Operand, dtype: Dtype, shape: Value, dims: Dims | None = None) -> Value:
        """One number everywhere, in a shape that may be known only in a run; `dims` are what is known of it."""
        if dims is None and shape.elements is not None:
            dims = tuple(shape.elements.tolist())
        output = None if dims is None else TensorDesc(data_type_of(dtype), shape_of(dims))
        return self.apply(OperationType.FILL, number, shape, output=output, dims=dims)

    def counted(self, count: Value) -> Value:
        """0, 1, 2, ... as INT64: so many as a vector of one number says in a run."""
        zeros = self.filled(self.number(0, np.dtype(np.float32)), np.dtype(np.float32), count)
        # Of equal elements the one with the lower index comes first.
        _, order = self.apply_to_several(OperationType.TOP_K, zeros, self.cast(count, np.dtype(np.int64)))
        return self.cast(order, np.dtype(np.int64))

    def places(self, x: Value, axis: int) -> Value:
        """0, 1, 2, ... as INT64, as far as a dimension reaches."""
        size = x.dims[axis]
        if isinstance(size, int):
            require_moderate((size,))
            return self.constant(np.arange(size))
        places = self.counted(self.reshape(self.size(x, axis), (1,)))
        places.dims = (size,)
        return places


def require_moderate(dims: Dims) -> None:
    """Refuse to make a constant of dimensions that are not known, or far too large."""
    shape = shape_of(dims)
    if -1 in shape or math.prod(shape) > _MOST_ELEMENTS:
        refuse(
            f"it needs a constant of shape {list(shape)}; use known dimensions, and at most {_MOST_ELEMENTS} elements"
        )
