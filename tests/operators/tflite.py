"""TensorFlow Lite models of one operator, run by LiteRT's integer kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

from nnrt_hdi.tensor import TensorSpec

AnyArray = NDArray[Any]
# Versions of the operators with int8 kernels; 2 if not listed here.
_VERSIONS = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "TRANSPOSE_CONV": 3}
_VERSIONS |= dict.fromkeys(("ELU", "HARD_SWISH", "PRELU", "REDUCE_ALL", "RELU_N1_TO_1", "RESHAPE"), 1)


@dataclass(frozen=True, eq=False)
class Tensor:
    """Tensor of the model; per-channel quantization parameters run along `axis`."""

    spec: TensorSpec
    array: AnyArray | None = None
    is_constant: bool = False
    axis: int = 0


def run_tflite(operator: str, operands: Sequence[Tensor | None], output: TensorSpec, **options: Any) -> AnyArray:
    """Run a builtin operator, and return its output.

    `options` are the fields of the operator's options table, and `options_of` is that table's name.
    """
    buffers = [schema.BufferT()]
    tensors: list[Any] = []
    for tensor in (*operands, Tensor(output)):
        if tensor is None:
            continue
        buffer = 0
        if tensor.is_constant:
            assert tensor.array is not None
            buffers.append(schema.BufferT(data=np.frombuffer(tensor.array.tobytes(), np.uint8)))
            buffer = len(buffers) - 1
        tensors.append(_tensor(tensor, buffer, f"t{len(tensors)}"))
    numbers = iter(range(len(tensors)))
    inputs = [-1 if tensor is None else next(numbers) for tensor in operands]
    given = [
        (at, tensor.array)
        for at, tensor in zip(inputs, operands, strict=True)
        if tensor is not None and tensor.array is not None and not tensor.is_constant
    ]
    node = schema.OperatorT(opcodeIndex=0, inputs=inputs, outputs=[len(tensors) - 1])
    table = options.pop("options_of", "")
    if table:
        node.builtinOptionsType = getattr(schema.BuiltinOptions, table)
        node.builtinOptions = getattr(schema, f"{table}T")(**options)
    code = getattr(schema.BuiltinOperator, operator)
    graph = schema.SubGraphT(
        tensors=tensors, inputs=[at for at, _ in given], outputs=[len(tensors) - 1], operators=[node], name="main"
    )
    model = schema.ModelT(
        version=3,
        operatorCodes=[schema.OperatorCodeT(min(code, 127), None, _VERSIONS.get(operator, 2), code)],
        subgraphs=[graph],
        buffers=buffers,
    )
    return _run(model, given, len(tensors) - 1)


def _tensor(tensor: Tensor, buffer: int, name: str) -> Any:
    spec = tensor.spec
    quantization = None
    if spec.quant:
        quantization = schema.QuantizationParametersT(
            scale=[param.scale for param in spec.quant],
            zeroPoint=[param.zero_point for param in spec.quant],
            quantizedDimension=tensor.axis,
        )
    kind = getattr(schema.TensorType, spec.data_type.name)
    return schema.TensorT(list(spec.shape), kind, buffer, name, quantization, hasRank=True)


def _run(model: Any, given: Sequence[tuple[int, AnyArray]], output: int) -> AnyArray:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    interpreter = Interpreter(
        model_content=bytes(builder.Output()),
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    for at, array in given:
        interpreter.set_tensor(at, array)
    interpreter.invoke()
    result: AnyArray = interpreter.get_tensor(output).copy()
    return result
