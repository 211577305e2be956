"""The element types that a file declares for its values, held against those that its nodes give them."""

from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto
from onnx.shape_inference import InferenceError, infer_shapes

from nnrt_client.onnx_import.file import type_name
from nnrt_client.onnx_import.scope import in_order
from nnrt_hdi.errors import InvalidFile


def require_declared_types(proto: ModelProto) -> None:
    """Raise InvalidFile where a value is declared with another element type than onnx infers for it.

    Shapes are not compared: exporters declare wrong ones, which ONNX Runtime takes, too. Weights are not copied. The
    functions of the file must be known to end.
    """
    graph = proto.graph
    bare = GraphProto(
        name="graph",
        node=in_order(graph.node),
        input=graph.input,
        output=[ValueInfoProto(name=info.name) for info in graph.output],
        initializer=[TensorProto(name=one.name, data_type=one.data_type, dims=one.dims) for one in graph.initializer],
    )
    model = ModelProto(
        ir_version=proto.ir_version, opset_import=proto.opset_import, functions=proto.functions, graph=bare
    )
    try:
        inferred = infer_shapes(model).graph
    except (InferenceError, RuntimeError, ValueError):  # It has operators whose domain onnx doesn't know.
        return
    given = {info.name: info.type.tensor_type.elem_type for info in (*inferred.value_info, *inferred.output)}
    given |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for info in (*graph.value_info, *graph.output, *graph.input):
        declared, own = info.type.tensor_type.elem_type, given.get(info.name)
        if declared and own and declared != own:
            raise InvalidFile(
                f"value {info.name!r} is declared {type_name(declared)} and computed as {type_name(own)};"
                f" declare it {type_name(own)}"
            )
