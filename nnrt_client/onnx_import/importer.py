"""Import of a whole ONNX graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import onnx

from nnrt_client.model.model import Model, ModelTensor, parts_of
from nnrt_client.onnx_import.context import Context, Owner
from nnrt_client.onnx_import.declared_types import require_declared_types
from nnrt_client.onnx_import.file import OnnxFile
from nnrt_client.onnx_import.freezing import freeze
from nnrt_client.onnx_import.node_import import import_nodes
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import FIRST_OPSET, MICROSOFT
from nnrt_client.onnx_import.scope import Missing, Scope
from nnrt_client.onnx_import.value import Value, clear_values_at_end
from nnrt_client.tensors.frozen import Constants
from nnrt_hdi.errors import Unsupported


@dataclass(frozen=True, slots=True)
class Attempt:
    """Result of an import: the finished model, or its problems, each with the node or value that has it."""

    model: Model | None
    # For each operation of the model: the node of the graph, or the name of the output, that it comes from.
    owners: Sequence[Owner]
    problems: Sequence[tuple[Owner, str]]
    scope: Scope


def import_file(file: OnnxFile, shapes: Mapping[str, Sequence[int]], constants: Constants) -> Model:
    """Import a file as a finished model. Raise Unsupported, which lists every node that can't be imported."""
    freeze(file.proto, constants)
    context = Context(file, shapes)
    attempt = _import(context)
    context.problems.raise_all()
    assert attempt.model is not None
    # After the import, which has checked that functions don't recurse.
    require_declared_types(file.proto, attempt.scope)
    return attempt.model


def attempt_import(file: OnnxFile) -> Attempt:
    """Import a file, and return its problems instead of raising them."""
    return _import(Context(file, {}))


def _import(context: Context) -> Attempt:
    with clear_values_at_end():
        return _import_graph(context)


def _import_graph(context: Context) -> Attempt:
    file, graph, model, problems = context.file, context.file.proto.graph, context.model, context.problems
    opsets = _opsets(file)
    values = context.constants(graph)
    inputs = [info for info in graph.input if info.name not in values]
    context.check_inputs(inputs)
    for info in inputs:
        context.set_owner(info.name)
        values[info.name] = problems.guard(f"input {info.name!r}", partial(context.input, info)) or Missing()
    given = [value for info in inputs if isinstance(value := values[info.name], Value)]
    scope = Scope(graph.node, values, [info.name for info in graph.output], opsets)
    import_nodes(context, scope, 0, "")
    outputs = _outputs(context, scope, given)
    owners = context.operation_owners()
    if problems:
        return Attempt(None, (), problems.by_owner, scope)
    owner_of = {id(operation): owner for operation, owner in zip(parts_of(model).operations, owners, strict=True)}
    model.specify_inputs_and_outputs([value.tensor for value in given], outputs)
    parts_of(model).drop_unused_operations()
    model.finish()
    return Attempt(model, [owner_of[id(operation)] for operation in parts_of(model).operations], (), scope)


def _outputs(context: Context, scope: Scope, inputs: Sequence[Value]) -> list[ModelTensor]:
    """Return a tensor for each imported output, named as in the file.

    An output that is an input, a constant or a previous output is copied, because each output needs its own tensor.
    """
    tensors: list[ModelTensor] = []
    taken = [value.tensor for value in inputs]
    for name in scope.outputs:
        context.set_owner(name)
        value = scope[name]
        if isinstance(value, Missing):
            continue
        tensor = context.problems.guard(f"output {name!r}", partial(_tensor_of, value))
        if tensor is None:
            continue
        if value.is_constant or tensor in (*taken, *tensors):
            copied = NodeBuilder(context.model, "Identity", name, 0, [True]).copy(value)
            tensor = copied.tensor
        # Only now is it known which of a node's operations computes the output.
        parts_of(context.model).rename(tensor.index, name)
        tensors.append(tensor)
    return tensors


def _tensor_of(value: Value) -> ModelTensor:
    return value.tensor


def _opsets(file: OnnxFile) -> dict[str, int]:
    opsets = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in file.proto.opset_import}
    version, newest = opsets.get("", FIRST_OPSET), onnx.defs.onnx_opset_version()
    if version < FIRST_OPSET:
        raise Unsupported(f"it uses operator set {version}; use {FIRST_OPSET} or later")
    if version > newest:
        raise Unsupported(
            f"it uses operator set {version}, but onnx {onnx.__version__} knows {newest}; install a newer onnx"
        )
    # ONNX Runtime's optimizer for transformers adds operators of this domain without declaring it.
    return {MICROSOFT: 1, **opsets}
