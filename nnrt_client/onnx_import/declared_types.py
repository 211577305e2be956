"""The element types that a file declares for its values, held against those that its nodes give them."""

from collections.abc import Iterable, Mapping

from google.protobuf.message import EncodeError
from onnx import GraphProto, ModelProto, OperatorSetIdProto, TensorProto, ValueInfoProto
from onnx.helper import make_tensor_value_info, np_dtype_to_tensor_dtype
from onnx.shape_inference import InferenceError, infer_shapes

from nnrt_client.onnx_import.file import type_name
from nnrt_client.onnx_import.operators.operator import MICROSOFT
from nnrt_client.onnx_import.scope import Scope, in_order
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.errors import InvalidFile


def require_declared_types(proto: ModelProto, scope: Scope) -> None:
    """Raise InvalidFile where a value is declared with another element type than it has, or a node reads types that
    don't go together.

    The scope is that of the import, whose values have the types of what onnx doesn't know. Shapes are not compared:
    exporters declare wrong ones, which ONNX Runtime takes, too, as it does what `value_info` says of weights. Weights
    are not copied. The functions of the file must be known to end.
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
        node=in_order(graph.node),
        input=graph.input,
        output=[ValueInfoProto(name=info.name) for info in graph.output],
        initializer=[TensorProto(name=one.name, data_type=one.data_type, dims=one.dims) for one in graph.initializer],
        value_info=[make_tensor_value_info(name, imported[name], None) for name in unknown],
    )
    # Nodes of no set that the file names are imported, too, where they have a body or nobody reads them.
    opsets = dict.fromkeys((node.domain for node in graph.node), 1) | {
        **scope.opsets,
        "ai.onnx": scope.opsets.get("", 1),
    }
    sets = [OperatorSetIdProto(domain=domain, version=version) for domain, version in opsets.items()]
    model = ModelProto(ir_version=proto.ir_version, opset_import=sets, functions=proto.functions, graph=bare)
    try:
        inferred = infer_shapes(model, check_type=True).graph
    except EncodeError:  # Its constants are larger than a file may be. The import's types are what there is.
        inferred = bare
    except InferenceError as error:
        raise InvalidFile(f"types of values do not go together: {error}") from error
    given = {info.name: info.type.tensor_type.elem_type for info in (*inferred.value_info, *inferred.output)}
    known = imported | {name: type_ for name, type_ in given.items() if type_}
    _compare([info for info in (*graph.value_info, *graph.output) if info.name not in types], known)


def _compare(infos: Iterable[ValueInfoProto], types: Mapping[str, int]) -> None:
    """Raise InvalidFile where a value is declared with another type than these."""
    for info in infos:
        declared, own = info.type.tensor_type.elem_type, types.get(info.name)
        if declared and own and declared != own:
            raise InvalidFile(
                f"value {info.name!r} is declared {type_name(declared)} and computed as {type_name(own)};"
                f" declare it {type_name(own)}"
            )
