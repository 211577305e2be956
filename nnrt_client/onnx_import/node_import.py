"""Import of a node: by a function's body, a branch, constant folding, shape arithmetic, or its operator's function."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto

from nnrt_client.enums import FuseType
from nnrt_client.model.model import ModelTensor
from nnrt_client.onnx_import.context import Context
from nnrt_client.onnx_import.file import attribute_value
from nnrt_client.onnx_import.folding import fold_node
from nnrt_client.onnx_import.functions import function_body, schema_function
from nnrt_client.onnx_import.fusion import Follower
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import OnnxOperator, find_operator
from nnrt_client.onnx_import.origins import advise
from nnrt_client.onnx_import.quantized import can_quantize_result, moved_operands, quantized_operands
from nnrt_client.onnx_import.scope import Missing, Scope
from nnrt_client.onnx_import.shapes.dims import Elements, are_known
from nnrt_client.onnx_import.shapes.partial import compute, result_dtype
from nnrt_client.onnx_import.signature import bind, refuse
from nnrt_client.onnx_import.unmapped import reason_of
from nnrt_client.onnx_import.value import Value, constant_value, mark_quantized
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, Unsupported
from nnrt_hdi.graph import quoted_name

# Deepest nesting of function calls and branches.
_DEEPEST = 32
# Longest chain of values whose tensors are not in the model yet. Making a tensor recurses along the chain.
_LONGEST_CHAIN = 50

Results = Sequence[Value | None]


def import_nodes(context: Context, scope: Scope, depth: int, place: str) -> None:
    """Import the nodes that a scope's outputs need. Nodes that can't be imported are added to the problems."""
    if depth > _DEEPEST:
        raise InvalidFile(f"its functions and branches go deeper than {_DEEPEST}", place=place)
    # Constants first: a node may fuse the reader of a constant that comes later, right in front of that reader.
    for node in sorted(scope.nodes, key=lambda node: node.op_type != "Constant" or bool(node.input)):
        context.count_node()
        if depth == 0:
            context.set_owner(node)
        if id(node) not in scope.fused:
            name = node.name or next(iter(node.output), "")
            NodeImport(context, node, scope, depth, f"{place}{node.op_type} node{quoted_name(name)}").run()


def _fuse_nothing() -> FuseType:
    """Fuse no activation."""
    return FuseType.NONE


def _as_tuple(results: Any) -> Results:
    return results if isinstance(results, tuple) else (results,)


class NodeImport:
    """Import of one node: it adds operations to the model, and the node's outputs to the scope."""

    def __init__(self, context: Context, node: NodeProto, scope: Scope, depth: int, place: str) -> None:
        self.context = context
        self.model = context.model
        self.node = node
        self.scope = scope
        self.depth = depth
        self.place = place
        self.domain = "" if node.domain == "ai.onnx" else node.domain
        self.opset = scope.opsets.get(self.domain, 0)
        self.follower = Follower(scope, node, self.opset)

    def run(self) -> None:
        """Set the values of the node's outputs in the scope."""
        before = len(self.context.problems)
        results = self.context.problems.guard(self.place, self._values)
        is_affected = any(self.scope.is_affected(name) for name in self.node.input)
        if is_affected and results is None and self._is_mapped():
            self.context.problems.truncate(before)
        # Missing outputs are a problem of their own only if there is no other one.
        is_sound = bool(results) and len(self.context.problems) == before
        for at, name in enumerate(self.follower.names):
            if not name:
                continue
            result = results[at] if results is not None and at < len(results) else None
            if result is None and is_sound and self.scope.is_read(name):
                self.context.problems.add(f"{self.place}: its output {name!r} can't be had")
            self.scope[name] = self.context.substitute(name) if result is None else result
            if is_affected or len(self.context.problems) > before:
                self.scope.affected_names.add(name)

    def _values(self) -> Results:
        """Return the values of the outputs, or none if an input is missing, for which there is a problem already."""
        values = [self.scope[name] if name else None for name in self.node.input]
        if any(isinstance(value, Missing) for value in values):
            self._require_mapped()
            return ()
        return self._results([value for value in values if not isinstance(value, Missing)])

    def _results(self, given: list[Value | None]) -> Results:
        while given and given[-1] is None:
            given.pop()
        attributes = self._attributes()
        local = self.context.functions.get((self.node.domain, self.node.op_type))
        if local is not None:
            return self._import_function(local, given)
        if self.domain == "" and self.node.op_type == "If":
            return self._import_branch(given, attributes)
        operator = find_operator(self.domain, self.node.op_type, self.opset)
        if self.domain == "":
            arrays = None if self._reads_files() else fold_node(self.node, self.opset, given)
            if arrays is not None:
                self.context.count_bytes([*(value.array for value in given if value is not None), *arrays])
                return [constant_value(self.model, array) for array in arrays]
            numbers = compute(self.node.op_type, given, attributes) if len(self.node.output) == 1 else None
            if numbers is not None and operator is not None:
                return [self._import_shape_arithmetic(operator, given, attributes, numbers)]
        if operator is None:
            body = schema_function(self.node, self.domain, self.opset, given)
            if body is None:
                refuse(reason_of(self.domain, self.node.op_type, self.opset))
            return self._import_function(body, given)
        try:
            return self._map(operator, given, attributes)
        except (Unsupported, InvalidParameter):
            self.follower.undo()
            body = schema_function(self.node, self.domain, self.opset, given)
            before = len(self.context.problems)
            results = self._import_function(body, given) if body is not None else ()
            if body is not None and len(self.context.problems) == before:
                return results
            # The operator's own reason says more than the problems of its body.
            self.context.problems.truncate(before)
            raise

    def _map(self, operator: OnnxOperator, given: list[Value | None], attributes: Mapping[str, Any]) -> Results:
        """Call the operator's function, on quantized tensors if all its operands have them, and return the results."""
        parameters = bind(operator.signature, given, attributes)
        operands = quantized_operands(operator, given, attributes)
        found = None if operands is None else self.follower.fuse_quantization(fuses=operator.fuses)
        if operands is not None and found is not None:
            fuse, quantization = found
            if can_quantize_result(operator, operands, quantization):
                builder = self._builder(lambda: fuse, None if operator.moves else quantization.param)
                return [mark_quantized(operator.signature.function(builder, *operands, **parameters))]
            self.follower.undo()
        if (kept := moved_operands(self.model, operator, given)) is not None:
            return self._move_quantized(operator, *kept, given, parameters)
        return _as_tuple(operator.signature.function(self._builder(self.follower), *given, **parameters))

    def _move_quantized(
        self,
        operator: OnnxOperator,
        quant: QuantParam,
        operands: Sequence[Value | None],
        given: Sequence[Value | None],
        parameters: Mapping[str, Any],
    ) -> Results:
        """Return the quantized results of an operator that moves the integers of quantized tensors.

        A result of QuantizeLinear exists in two forms: the quantized tensor, and the integers rounded as in ONNX. The
        operator is applied to the second form for readers that need the integers themselves.
        """

        def moved(parts: Sequence[Value | None], quant: QuantParam | None = None) -> Results:
            return _as_tuple(operator.signature.function(self._builder(_fuse_nothing, quant), *parts, **parameters))

        def exact(at: int) -> ModelTensor:
            value = moved(given)[at]
            assert value is not None
            return value.tensor

        results = [mark_quantized(value) for value in moved(operands, quant) if value is not None]
        if operands[0] is given[0]:
            return results
        twofold = [Value(value.dtype, value.dims, partial(exact, at)) for at, value in enumerate(results)]
        for value, result in zip(twofold, results, strict=True):
            value.quantized = result.quantized
        return twofold

    def _builder(self, fuse: Callable[[], FuseType], quant: QuantParam | None = None) -> NodeBuilder:
        name = self.node.name or self.follower.names[0]
        outputs = [self.scope.is_read(output) for output in self.node.output]
        return NodeBuilder(self.model, self.node.op_type, name, self.opset, outputs, fuse, quant, self.context.shared)

    def _import_shape_arithmetic(
        self, operator: OnnxOperator, given: list[Value | None], attributes: Mapping[str, Any], numbers: Elements
    ) -> Value:
        """Return a result of shape arithmetic: a constant, or a value that a run computes if its tensor is needed."""
        dtype = result_dtype(self.node.op_type, given, attributes)
        if are_known(numbers):
            return constant_value(self.model, np.array(numbers.tolist(), dtype))

        def make() -> ModelTensor:
            try:
                parameters = bind(operator.signature, given, attributes)
                # The nodes that follow have been imported by now, so this node can't fuse them.
                result = operator.signature.function(self._builder(lambda: FuseType.NONE), *given, **parameters)
            except NnrtError as error:
                raise error.at(self.place) from error
            assert isinstance(result, Value)
            return result.tensor

        depth = 1 + max(value.depth for value in given if value is not None)
        value = Value(dtype, numbers.shape, make, known=numbers, depth=depth)
        if depth > _LONGEST_CHAIN:
            _ = value.tensor
        return value

    def _import_branch(self, given: Sequence[Value | None], attributes: Mapping[str, Any]) -> Results:
        """Import the branch that an If takes. Raise Unsupported if its condition is known only in a run."""
        condition = given[0] if given else None
        if condition is None or condition.array is None or condition.array.size != 1:
            origin = advise(self.scope, self.node.input[0], self.context.file.proto.graph.input) if condition else ""
            refuse(
                f"NNRt has no branches, and its condition is known only in a run{origin and ': it follows ' + origin}"
            )
        graph = attributes.get("then_branch" if condition.array.reshape(-1)[0] else "else_branch")
        if not isinstance(graph, GraphProto):
            refuse("the branch to take is missing")
        values = self.context.constants(graph)
        outputs = [info.name for info in graph.output]
        return self._import_scope(Scope(graph.node, values, outputs, self.scope.opsets, self.scope))

    def _import_function(self, function: FunctionProto, given: Sequence[Value | None]) -> Results:
        """Import the nodes of a function in place of the node that calls it."""
        # Nodes of the body that read an absent input get an empty name.
        names = dict.fromkeys(function.input)
        absent = set(list(names)[len(given) :]) | {
            name for name, value in zip(names, given, strict=False) if value is None
        }
        values = {name: value for name, value in zip(names, given, strict=False) if value is not None}
        opsets = {**self.scope.opsets, **{entry.domain: entry.version for entry in function.opset_import}}
        opsets.setdefault("", onnx.defs.onnx_opset_version())
        wanted = [
            name for name, mine in zip(function.output, self.node.output, strict=False) if self.scope.is_read(mine)
        ]
        results = iter(self._import_scope(Scope(function_body(function, self.node, absent), values, wanted, opsets)))
        return [next(results) if name in wanted else None for name in function.output]

    def _import_scope(self, scope: Scope) -> Results:
        import_nodes(self.context, scope, self.depth + 1, f"{self.place} > ")
        found = [scope[name] for name in scope.outputs]
        return [value if isinstance(value, Value) else None for value in found]

    def _attributes(self) -> dict[str, Any]:
        return {
            attribute.name: attribute_value(self.context.file, self.model, attribute)
            for attribute in self.node.attribute
        }

    def _reads_files(self) -> bool:
        """Return whether a tensor attribute is external data, which onnx's evaluator would not find."""
        tensors = (attribute.t for attribute in self.node.attribute if attribute.type == AttributeProto.TENSOR)
        return any(tensor.data_location for tensor in tensors)

    def _require_mapped(self) -> None:
        """Raise Unsupported if the operator isn't mapped. A node whose inputs are missing gets no other check."""
        if not self._is_mapped():
            refuse(reason_of(self.domain, self.node.op_type, self.opset))

    def _is_mapped(self) -> bool:
        if (self.node.domain, self.node.op_type) in self.context.functions or self.node.op_type == "If":
            return True
        if find_operator(self.domain, self.node.op_type, self.opset) is not None:
            return True
        return schema_function(self.node, self.domain, self.opset, None) is not None
