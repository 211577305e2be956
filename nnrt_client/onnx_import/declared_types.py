"""Check of the element types that a file declares against the types that its nodes compute."""

from collections.abc import Iterable, Mapping

from google.protobuf.message import EncodeError
from onnx import GraphProto, ModelProto, OperatorSetIdProto, TensorProto, ValueInfoProto
from onnx.helper import make_tensor_value_info, np_dtype_to_tensor_dtype
from onnx.shape_inference import InferenceError, infer_shapes

from nnrt_client.onnx_import.file import type_name
from nnrt_client.onnx_import.operators.operator import MICROSOFT
from nnrt_client.onnx_import.scope import Scope, sort_nodes
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.errors import InvalidFile


def require_declared_types(proto: ModelProto, scope: Scope) -> None:
    """Raise InvalidFile if a declared element type is wrong, or a node reads types that don't fit each other.

    Shapes are not compared: exporters declare wrong shapes, and ONNX Runtime accepts them. Like ONNX Runtime, this
    function ignores `value_info` of weights. It doesn't copy weights.

    Args:
        proto: the model. The import must have checked that its functions don't recurse.
        scope: scope of the import. It has the types of values that onnx can't infer.
    """
    graph = proto.graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    _compare(graph.input, types)
    imported = {
        name: np_dtype_to_tensor_dtype(value.dtype) for name, value in scope.values.items() if isinstance(value, Value)
    }
    unknown = [name for node in graph.node if node.domain == MICROSOFT for name in node.output if name in imported]
    bare = GraphProto(
        name="graph",
        node=sort_nodes(graph.node),
        input=graph.input,
        output=[ValueInfoProto(name=info.name) for info in graph.output],
        initializer=[TensorProto(name=one.name, data_type=one.data_type, dims=one.dims) for one in graph.initializer],
        value_info=[make_tensor_value_info(name, imported[name], None) for name in unknown],
    )
    # The import accepts a node whose operator set the file doesn't name, if it has a body or no node reads its outputs.
    opsets = dict.fromkeys((node.domain for node in graph.node), 1) | {
        **scope.opsets,
        "ai.onnx": scope.opsets.get("", 1),
    }
    sets = [OperatorSetIdProto(domain=domain, version=version) for domain, version in opsets.items()]
    model = ModelProto(ir_version=proto.ir_version, opset_import=sets, functions=proto.functions, graph=bare)
    try:
        inferred = infer_shapes(model, check_type=True).graph
    except EncodeError:  # Its constants exceed protobuf's limit: only the import's types are compared.
        inferred = bare
    except InferenceError as error:
        raise InvalidFile(f"types of values do not go together: {error}") from error
    given = {info.name: info.type.tensor_type.elem_type for info in (*inferred.value_info, *inferred.output)}
    known = imported | {name: type_ for name, type_ in given.items() if type_}
    _compare([info for info in (*graph.value_info, *graph.output) if info.name not in types], known)


def _compare(infos: Iterable[ValueInfoProto], types: Mapping[str, int]) -> None:
    """Raise InvalidFile if a value is declared with a type that differs from `types`."""
    for info in infos:
        declared, own = info.type.tensor_type.elem_type, types.get(info.name)
        if declared and own and declared != own:
            raise InvalidFile(
                f"value {info.name!r} is declared {type_name(declared)} and computed as {type_name(own)};"
                f" declare it {type_name(own)}"
            )
