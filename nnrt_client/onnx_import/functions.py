"""Operators that are defined by a body of other nodes: functions of the model, and function operators of ONNX."""

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TypeProto, helper

from nnrt_client.onnx_import.value import Value

Functions = dict[tuple[str, str], FunctionProto]


def local_functions(model: ModelProto) -> Functions:
    """Return the functions of a model by domain and name."""
    return {(function.domain, function.name): function for function in model.functions}


def schema_function(
    node: NodeProto, domain: str, opset: int, inputs: Sequence[Value | None] | None
) -> FunctionProto | None:
    """Return the body by which ONNX defines an operator, or None if there is none.

    The body of some operators depends on the types of the inputs. For these, return an empty function if `inputs` is
    None.
    """
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    body = b""
    if schema.has_function:
        version = max((known for known in schema.function_opset_versions if known <= opset), default=None)
        body = schema.get_function_with_opset_version(version) if version else b""
    elif schema.has_context_dependent_function and inputs is not None:
        versions = schema.context_dependent_function_opset_versions
        version = max((known for known in versions if known <= opset), default=None)
        types = [(type_proto(value) if value else TypeProto()).SerializeToString() for value in inputs]
        if version:
            body = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
    elif schema.has_context_dependent_function:
        return FunctionProto()
    if not body:
        return None
    function = FunctionProto.FromString(body)
    # Defaults of attributes are in the operator's schema, not in its body.
    declared = {attribute.name for attribute in function.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in declared and attribute.default_value.name:
            function.attribute_proto.append(attribute.default_value)
    return function


def type_proto(value: Value) -> TypeProto:
    """Return the data type and shape of a value. Unknown dimensions have their formula as name."""
    dims = [dim if isinstance(dim, int) else dim.formula for dim in value.dims]
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), dims)


def function_body(function: FunctionProto, node: NodeProto, absent: set[str]) -> list[NodeProto]:
    """Return the nodes of a function, with attributes of the calling node. Inputs in `absent` get empty names."""
    given = {attribute.name: attribute for attribute in function.attribute_proto}
    given.update({attribute.name: attribute for attribute in node.attribute})
    return [_with_arguments(inner, given, absent) for inner in function.node]


def _with_arguments(node: NodeProto, given: dict[str, AttributeProto], absent: set[str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = ["" if name in absent else name for name in node.input]
    del copy.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name and attribute.ref_attr_name not in given:
            continue
        copy.attribute.append(given.get(attribute.ref_attr_name, attribute))
        added = copy.attribute[-1]
        added.name = attribute.name
        if added.type == AttributeProto.GRAPH:
            inner = [_with_arguments(part, given, absent) for part in added.g.node]
            del added.g.node[:]
            added.g.node.extend(inner)
    return copy
