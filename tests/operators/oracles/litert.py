"""Oracle LiteRT (TensorFlow Lite): models of one operator."""

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from flatbuffers import flexbuffers
from numpy.typing import NDArray

AnyArray = NDArray[Any]


def run(
    operator: int,
    arrays: Sequence[AnyArray],
    outputs: int = 1,
    custom: tuple[str, Mapping[str, Any]] | None = None,
) -> list[AnyArray]:
    """Run a builtin operator, or a custom one with this name and options; return its outputs."""
    model = _model(operator, arrays, outputs, custom)
    interpreter = Interpreter(
        model_content=model,
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    for details, array in zip(interpreter.get_input_details(), arrays, strict=True):
        interpreter.set_tensor(details["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]


def _model(
    operator: int, arrays: Sequence[AnyArray], outputs: int, custom: tuple[str, Mapping[str, Any]] | None
) -> bytes:
    count = len(arrays)
    graph = schema.SubGraphT()
    graph.tensors = [_tensor(f"x{index}", array.dtype, array.shape) for index, array in enumerate(arrays)]
    graph.tensors += [_tensor(f"y{index}", arrays[0].dtype, ()) for index in range(outputs)]
    graph.inputs, graph.outputs = list(range(count)), list(range(count, count + outputs))
    node, code = schema.OperatorT(), schema.OperatorCodeT()
    node.inputs, node.outputs, node.opcodeIndex = graph.inputs, graph.outputs, 0
    code.builtinCode, code.deprecatedBuiltinCode, code.version = operator, min(operator, 127), 1
    if custom:
        code.customCode = custom[0]
        node.customOptions = list(flexbuffers.Dumps(dict(custom[1])))
    graph.operators = [node]
    model = schema.ModelT()
    model.version, model.subgraphs, model.operatorCodes, model.buffers = 3, [graph], [code], [schema.BufferT()]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _tensor(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> Any:
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.buffer = name, list(shape), 0
    tensor.type = getattr(schema.TensorType, dtype.name.upper())
    return tensor
