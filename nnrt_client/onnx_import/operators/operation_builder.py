"""Builder of operations whose operands are values of an ONNX graph."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnrt_client.enums import DataType, Format, OperationType
from nnrt_client.model.model import Model, ModelTensor, parts_of
from nnrt_client.onnx_import.shapes.dimension_probe import output_dims
from nnrt_client.onnx_import.shapes.dims import Dims, Number, shape_of
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Dtype, Value, constant_value, data_type_of, value_of
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.tensor import UNKNOWN_DIM, Array

Operand = Value | Array | Sequence[int] | int | float


class OperationBuilder:
    """Builder that appends operations to a model, named after a node."""

    def __init__(self, model: Model, name: str) -> None:
        self.model = model
        self.name = name

    def apply(self, type: OperationType, *operands: Operand, dims: Dims | None = None, **parameters: Any) -> Value:
        """Append an operation with one output; see `Model.apply`.

        `dims` are the dimensions of the output, for a caller that knows more than shape inference does.
        """
        if dims is None:
            (value,) = self._append(type, operands, parameters)
            return value
        (tensor,) = self._append_operation(type, operands, parameters)
        (spec,) = (record.spec for record in parts_of(self.model).last_operation.outputs)
        known = (given if own == UNKNOWN_DIM else own for own, given in zip(spec.shape, dims, strict=True))
        return value_of(tensor, tuple(known))

    def apply_to_several(self, type: OperationType, *operands: Operand, **parameters: Any) -> tuple[Value, ...]:
        """Append an operation with several outputs."""
        return self._append(type, operands, parameters)

    def _append(
        self, type: OperationType, operands: Sequence[Operand], parameters: dict[str, Any]
    ) -> tuple[Value, ...]:
        tensors = self._append_operation(type, operands, parameters)
        known = [operand.dims if isinstance(operand, Value) else None for operand in operands]
        return tuple(map(value_of, tensors, output_dims(self.model, known)))

    def _append_operation(
        self, type: OperationType, operands: Sequence[Operand], parameters: dict[str, Any]
    ) -> tuple[ModelTensor, ...]:
        given: list[Any] = [operand.tensor if isinstance(operand, Value) else operand for operand in operands]
        result: Any = self.model.apply(type, *given, **{"name": self.name, **parameters})
        return result if isinstance(result, tuple) else (result,)

    def constant(self, array: Array, *, format: Format = Format.NONE, quant: QuantParam | None = None) -> Value:
        return constant_value(self.model, array, format=format, quant=quant)

    def lazy(self, dtype: Dtype, dims: Dims, make: Callable[[], Value]) -> Value:
        """Return a value that `make` computes on the first access of its tensor."""
        return Value(dtype, dims, lambda: make().tensor)

    def number(self, value: float | bool, dtype: Dtype) -> Value:
        """Return a scalar constant."""
        return self.constant(np.array(value, dtype))

    def cast(self, x: Value, dtype: Dtype) -> Value:
        if x.dtype == dtype:
            return x
        if x.is_quantized:
            return self.cast(self.integers_as_float(x), dtype)
        if x.real is not None and dtype == np.float32:
            return self.cast(x.real, dtype)
        if x.is_constant and np.can_cast(x.dtype, dtype):
            assert x.array is not None
            return self.constant(x.array.astype(dtype))
        number = np.array(data_type_of(dtype).value, np.int32)
        return self.apply(OperationType.CAST, x, number, dims=x.dims)

    def integers_as_float(self, x: Value) -> Value:
        """Return the integers of a quantized tensor as FLOAT32."""
        assert x.quantized is not None
        (scale,), (point,) = x.quantized.scales, x.quantized.zero_points
        types = {"src_t": data_type_of(x.dtype), "dst_t": DataType.FLOAT32}
        real = self.apply(OperationType.QUANT_DTYPE_CAST, x, axis=0, dims=x.dims, **types)
        counted = self.apply(OperationType.ROUND, self.apply(OperationType.DIV, real, self.number(scale, real.dtype)))
        return self.apply(OperationType.ADD, counted, self.number(point, real.dtype))

    def reshape(self, x: Value, target: Sequence[Number], at_run_time: Value | None = None) -> Value:
        """Reshape x. `at_run_time` is a vector with the shape, needed if several dimensions are known only in a run."""
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
        """Return a copy of x, in a new tensor."""
        return self.apply(OperationType.BROADCAST_TO, x, shape=[-1] * x.rank, dims=x.dims)
