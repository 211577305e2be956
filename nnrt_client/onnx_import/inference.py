"""What ONNX's own shape inference says of the values of a graph: it knows dimensions by name."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper, shape_inference

from nnrt_client.onnx_import.dims import Dim, Dims, Number, unlike
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import NUMPY_DTYPES

Kind = tuple[np.dtype[np.generic], Dims]
_IR_VERSION = 10


def inferred_kinds(
    nodes: Sequence[NodeProto], opsets: Mapping[str, int], inputs: Mapping[str, Value], outputs: Iterable[str]
) -> dict[str, Kind]:
    """Data types and dimensions by name, as far as they can be known."""
    model = _model(nodes, opsets, inputs, outputs)
    try:
        graph = shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:  # It raises what it likes, and is only asked for advice.
        return {}
    return {info.name: kind for info in (*graph.value_info, *graph.output) if (kind := _kind(info.type))}


def type_proto(value: Value) -> onnx.TypeProto:
    """The data type and shape of a value, unknown dimensions by their formula."""
    dims = [dim if isinstance(dim, int) else dim.formula for dim in value.dims]
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), dims)


def _model(
    nodes: Sequence[NodeProto], opsets: Mapping[str, int], inputs: Mapping[str, Value], outputs: Iterable[str]
) -> onnx.ModelProto:
    """The nodes as a model without weights and functions."""
    given, constants = [], []
    for name, value in inputs.items():
        if value.is_constant and value.is_small:
            constants.append(numpy_helper.from_array(np.ascontiguousarray(value.array), name))
        else:
            given.append(helper.make_value_info(name, type_proto(value)))
    wanted = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "graph", given, wanted, constants)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def _kind(type: onnx.TypeProto) -> Kind | None:
    if not type.HasField("tensor_type") or not type.tensor_type.HasField("shape"):
        return None
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(type.tensor_type.elem_type))
    except (KeyError, TypeError, ValueError):
        return None
    if dtype not in NUMPY_DTYPES.values():
        return None
    return dtype, tuple(_number(dim) for dim in type.tensor_type.shape.dim)


def _number(dim: onnx.TensorShapeProto.Dimension) -> Number:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return Dim(dim.dim_param) if dim.dim_param else unlike()
