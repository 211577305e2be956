"""The builder that the function of an operator works with: the node at hand, and the model that gets its operations."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from nnrt_client.enums import DataType, Format, FuseType, OperationType
from nnrt_client.model.model import Model, ModelTensor, parts_of
from nnrt_client.onnx_import.shapes.dimension_probe import output_dims
from nnrt_client.onnx_import.shapes.dims import Dims, Number, shape_of
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Dtype, Value, constant_value, data_type_of, value_of
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.tensor import NUMPY_DTYPES, UNKNOWN_DIM, Array

# Of a constant that an operator is given on the way.
_MOST_ELEMENTS = 1 << 26
Operand = Value | Array | Sequence[int] | int | float


class NodeBuilder:
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
        self.model = model
        self.type = type
        self.name = name
        self.opset = opset
        self.outputs = tuple(outputs)
        self.activation = fuse
        self.quant = quant

    def apply(self, type: OperationType, *operands: Operand, dims: Dims | None = None, **parameters: Any) -> Value:
        """Append an operation of one output, see `Model.apply`.

        `dims` are the dimensions of the output where more is known of them than that they are known in a run.
        """
        if dims is None:
            (value,) = self._applied(type, operands, parameters)
            return value
        (tensor,) = self._tensors(type, operands, parameters)
        (spec,) = (record.spec for record in parts_of(self.model).last_operation.outputs)
        known = (said if mine == UNKNOWN_DIM else mine for mine, said in zip(spec.shape, dims, strict=True))
        return value_of(tensor, tuple(known))

    def apply_to_several(self, type: OperationType, *operands: Operand, **parameters: Any) -> tuple[Value, ...]:
        """Append an operation of several outputs."""
        return self._applied(type, operands, parameters)

    def _applied(
        self, type: OperationType, operands: Sequence[Operand], parameters: dict[str, Any]
    ) -> tuple[Value, ...]:
        tensors = self._tensors(type, operands, parameters)
        known = [operand.dims if isinstance(operand, Value) else None for operand in operands]
        return tuple(map(value_of, tensors, output_dims(self.model, known)))

    def _tensors(
        self, type: OperationType, operands: Sequence[Operand], parameters: dict[str, Any]
    ) -> tuple[ModelTensor, ...]:
        given: list[Any] = [operand.tensor if isinstance(operand, Value) else operand for operand in operands]
        result: Any = self.model.apply(type, *given, **{"name": self.name, **parameters})
        return result if isinstance(result, tuple) else (result,)

    def constant(self, array: Array, *, format: Format = Format.NONE, quant: QuantParam | None = None) -> Value:
        return constant_value(self.model, array, format=format, quant=quant)

    def later(self, dtype: Dtype, dims: Dims, make: Callable[[], Value]) -> Value:
        """A value that is made when somebody asks for it."""
        return Value(dtype, dims, lambda: make().tensor)

    def number(self, value: float | bool, dtype: Dtype) -> Value:
        """A scalar constant."""
        return self.constant(np.array(value, dtype))

    def cast(self, x: Value, dtype: Dtype) -> Value:
        if x.dtype == dtype:
            return x
        if x.stands_for_real:
            return self.cast(self.steps(x), dtype)
        if x.real is not None and dtype == np.float32:
            return self.cast(x.real, dtype)
        if x.is_constant and np.can_cast(x.dtype, dtype):
            assert x.array is not None
            return self.constant(x.array.astype(dtype))
        number = np.array(data_type_of(dtype).value, np.int32)
        return self.apply(OperationType.CAST, x, number, dims=x.dims)

    def steps(self, x: Value) -> Value:
        """The integers of a quantized tensor as FLOAT32."""
        assert x.quantized is not None
        (scale,), (point,) = x.quantized.scales, x.quantized.zero_points
        types = {"src_t": data_type_of(x.dtype), "dst_t": DataType.FLOAT32}
        real = self.apply(OperationType.QUANT_DTYPE_CAST, x, axis=0, dims=x.dims, **types)
        counted = self.apply(OperationType.ROUND, self.apply(OperationType.DIV, real, self.number(scale, real.dtype)))
        return self.apply(OperationType.ADD, counted, self.number(point, real.dtype))

    def reshape(self, x: Value, target: Sequence[Number], at_run_time: Value | None = None) -> Value:
        """The elements of x in another shape; where that is not known before a run, the value tells it."""
        target = tuple(target)
        if 0 in target:
            refuse(f"its output would have the shape {list(shape_of(target))}; tensors without elements have no place")
        if target == x.dims:
            return x
        if x.is_constant and x.quantized is None and -1 not in shape_of(target):
            assert x.array is not None
            return self.constant(x.array.reshape(shape_of(target)))
        if not target:
            return self.squeeze(self.reshape(x, (1,)), [0])
        if not x.rank:
            x = self.unsqueeze(x, [0])
        given = dict(enumerate(x.dims))
        numbers = [dim if isinstance(dim, int) else 0 if dim == given.get(at) else -1 for at, dim in enumerate(target)]
        if numbers.count(-1) <= 1:
            reshaped = self.apply(OperationType.RESHAPE, x, np.array(numbers, np.int64), dims=target)
        elif at_run_time is None:
            refuse(f"{x} can't be given {numbers.count(-1)} dimensions that are known only in a run")
        else:
            output = TensorDesc(data_type_of(x.dtype), shape_of(target))
            reshaped = self.apply(OperationType.RESHAPE, x, at_run_time, output=output, dims=target)
        result: Value = reshaped
        return result

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        rank = x.rank + len(axes)
        added = [axis % rank for axis in axes]
        rest = iter(x.dims)
        dims = tuple(1 if at in added else next(rest) for at in range(rank))
        return self.apply(OperationType.UNSQUEEZE, x, axis=added, dims=dims) if added else x

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        gone = [axis % x.rank for axis in axes]
        dims = tuple(dim for at, dim in enumerate(x.dims) if at not in gone)
        if not gone:
            return x
        if all(x.tensor.desc.shape[at] == 1 for at in gone if x.tensor.desc.shape):
            return self.apply(OperationType.SQUEEZE, x, axis=gone, dims=dims)
        return self.reshape(x, dims)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        if list(order) == list(range(x.rank)):
            return x
        dims = tuple(x.dims[axis] for axis in order)
        return self.apply(OperationType.TRANSPOSE, x, np.array(order, np.int64), dims=dims)

    def copy(self, x: Value) -> Value:
        """A copy of the elements, in a tensor of their own."""
        return self.apply(OperationType.BROADCAST_TO, x, shape=[-1] * x.rank, dims=x.dims)

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
