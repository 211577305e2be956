"""Inputs and outputs of a program as NNRt tensors, or as values packed into them."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import onnx
from onnx import TensorProto

from nnrt_backend_onnxruntime.programs.shapes import SizedTensor
from nnrt_backend_onnxruntime.programs.skeleton import all_graphs, quoted
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, Unsupported
from nnrt_hdi.packed_values import STRINGS, PackedSpec, ValueType, value_shape
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec

_NUMBERS: dict[int, DataType] = {
    TensorProto.BOOL: DataType.BOOL,
    TensorProto.INT8: DataType.INT8,
    TensorProto.INT16: DataType.INT16,
    TensorProto.INT32: DataType.INT32,
    TensorProto.INT64: DataType.INT64,
    TensorProto.UINT8: DataType.UINT8,
    TensorProto.UINT16: DataType.UINT16,
    TensorProto.UINT32: DataType.UINT32,
    TensorProto.UINT64: DataType.UINT64,
    TensorProto.FLOAT16: DataType.FLOAT16,
    TensorProto.FLOAT: DataType.FLOAT32,
    TensorProto.DOUBLE: DataType.FLOAT64,
}
# The types as ONNX Runtime names them.
_NAMES = {
    f"tensor({name.lower()})": _NUMBERS[number] for name, number in TensorProto.DataType.items() if number in _NUMBERS
}


def input_specs(model: onnx.ModelProto) -> tuple[TensorSpec, ...]:
    """Return the inputs of a run.

    Raises:
        Unsupported: An input is neither a tensor of numbers nor one of strings.
        InvalidFile: An input has an impossible shape.
    """
    constants = {tensor.name for tensor in model.graph.initializer} | {
        sparse.values.name for sparse in model.graph.sparse_initializer
    }
    return tuple(_input_spec(entry) for entry in model.graph.input if entry.name not in constants)


def take_output_ranks(model: onnx.ModelProto) -> list[int | None]:
    """Remove the declared shapes of outputs from the model, and return their ranks; None where none is declared.

    ONNX Runtime would rely on these shapes, but many are those of the example with which a model was exported.
    """
    ranks: list[int | None] = []
    for entry in model.graph.output:
        has_shape = entry.type.HasField("tensor_type") and entry.type.tensor_type.HasField("shape")
        ranks.append(len(entry.type.tensor_type.shape.dim) if has_shape else None)
        if has_shape:
            entry.type.tensor_type.ClearField("shape")
    return ranks


def output_specs(session: Any, declared_ranks: Sequence[int | None]) -> tuple[TensorSpec, ...]:
    """Return the outputs of a run, with the dimensions that ONNX Runtime infers.

    Raises:
        Unsupported: An output can't be an NNRt tensor or a packed value, or the rank of a tensor is unknown.
    """
    return tuple(_output_spec(entry, rank) for entry, rank in zip(session.get_outputs(), declared_ranks, strict=True))


def are_inferred(outputs: Sequence[TensorSpec], known: Sequence[SizedTensor]) -> bool:
    """Return whether every known dimension of the outputs follows from the nodes alone."""
    inferred = {entry.name: entry.dims for entry in known}
    return all(
        dim in (UNKNOWN_DIM, sure)
        for spec in outputs
        for dim, sure in zip_longest(value_shape(spec), inferred.get(spec.name, ()))
    )


def declares_inner_shapes(model: onnx.ModelProto) -> bool:
    """Return whether the file declares shapes of inner values. ONNX Runtime relies on these too."""
    return any(graph.value_info for graph in all_graphs(model.graph))


def without_inner_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without the declared shapes of inner values."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for graph in all_graphs(bare.graph):
        del graph.value_info[:]
    return bare


def _input_spec(entry: onnx.ValueInfoProto) -> TensorSpec:
    place = f"input {quoted(entry.name)}"
    kind = entry.type.WhichOneof("value") or "no type at all"
    tensor = entry.type.tensor_type
    is_text = kind == "tensor_type" and tensor.elem_type == TensorProto.STRING
    if not is_text and (kind != "tensor_type" or tensor.elem_type not in _NUMBERS):
        known = tensor.elem_type in TensorProto.DataType.values()
        element = TensorProto.DataType.Name(tensor.elem_type).lower() if known else f"data type {tensor.elem_type}"
        raise _no_tensor(f"tensor({element})" if kind == "tensor_type" else kind.removesuffix("_type"), place)
    if not tensor.HasField("shape"):
        raise Unsupported(
            "the file does not say how many dimensions it has; give its shape, with -1 for each that varies",
            place=place,
        )
    dims = [dim.dim_value if dim.HasField("dim_value") else UNKNOWN_DIM for dim in tensor.shape.dim]
    data_type = None if is_text else _NUMBERS[tensor.elem_type]
    return _spec(data_type, [max(dim, UNKNOWN_DIM) for dim in dims], entry.name, place)


def _output_spec(entry: Any, declared_rank: int | None) -> TensorSpec:
    place = f"output {quoted(entry.name)}"
    dims = [dim if isinstance(dim, int) and dim >= 0 else UNKNOWN_DIM for dim in entry.shape]
    # An empty shape means a scalar or an unknown shape.
    is_ranked = bool(dims) or declared_rank is not None
    if entry.type not in _NAMES and not (entry.type == STRINGS and is_ranked):
        try:
            return PackedSpec.of(ValueType(entry.type), entry.name)
        except InvalidParameter as error:
            raise _no_tensor(entry.type, place) from error
    if not is_ranked:
        raise Unsupported("nobody knows how many dimensions it has; declare its shape in the file", place=place)
    return _spec(_NAMES.get(entry.type), dims or [UNKNOWN_DIM] * (declared_rank or 0), entry.name, place)


def _spec(data_type: DataType | None, dims: Sequence[int], name: str, place: str) -> TensorSpec:
    """Return the spec of a tensor, of strings if it has no data type. Raise InvalidFile for an impossible shape."""
    try:
        spec = TensorSpec(data_type or DataType.UINT64, tuple(dims), name=name)
        return spec if data_type else PackedSpec.of(ValueType(STRINGS, spec.shape), name)
    except NnrtError as error:
        raise InvalidFile(error.message, place=place) from error


def _no_tensor(kind: str, place: str) -> Unsupported:
    return Unsupported(
        f"it is {kind}, and a run takes only tensors, of bool, of integers of 8 to 64 bits, of float16, float, double"
        " and string, and returns also sequences and maps; cut the model so that such values stay inside of it",
        place=place,
    )
