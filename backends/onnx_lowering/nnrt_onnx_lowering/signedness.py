"""Conversion of quantized tensors to the 8-bit types that a processor has kernels for.

INT8 elements q with zero point z represent the same numbers as the UINT8 elements q + 128 with zero point z + 128, and
saturate at the same numbers. So tensors inside of a graph may have either type; inputs and outputs are converted.
"""

from dataclasses import replace

import numpy as np

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.tensor import TensorSpec
from nnrt_onnx_lowering.engine import IntegerTypes
from nnrt_onnx_lowering.value import AnyArray, Value

INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)
# The difference between an element in both types. Flipping this bit converts the element.
OFFSET = 128

# Operators whose second operand is a weight.
_WEIGHTED = frozenset(
    {NodeType.CONV2D_FUSION, NodeType.CONV2D_TRANSPOSE_FUSION, NodeType.FULL_CONNECTION, NodeType.MATMUL_FUSION}
)


def convert_integers(integers: IntegerTypes, graph: Graph) -> Graph:
    """Return the graph with quantized tensors, inputs and outputs too, in the types that the kernels take."""
    uses = [
        (tensor, position == 1 and node.type in _WEIGHTED)
        for node in graph.nodes
        for position, tensor in enumerate(node.inputs)
    ]
    activations = {tensor for tensor, is_weight in uses if not is_weight or tensor not in graph.constants}
    tensors, constants = list(graph.tensors), dict(graph.constants)
    for at, spec in enumerate(graph.tensors):
        wanted = integers.weights if at in constants and at not in activations else integers.activations
        if wanted is None or wanted == spec.data_type or not spec.is_quantized or spec.item_size != 1:
            continue
        tensors[at] = _converted(spec, wanted)
        if at in constants and (data := constants[at].data) is not None:
            constants[at] = Constant(b"", data.nbytes, _flipped(data))
    return graph.with_tensors(tensors).with_constants(constants)


def _converted(spec: TensorSpec, wanted: DataType) -> TensorSpec:
    offset = OFFSET if wanted is DataType.UINT8 else -OFFSET
    quant = tuple(replace(param, zero_point=param.zero_point + offset) for param in spec.quant)
    return replace(spec, data_type=wanted, quant=quant)


def _flipped(data: AnyArray) -> AnyArray:
    """Convert the elements of a constant to the other 8-bit type."""
    other = np.empty(data.shape, UINT8 if data.dtype == INT8 else INT8)
    np.bitwise_xor(data.view(UINT8), np.uint8(OFFSET), out=other.view(UINT8))
    return other


def flipped(elements: Value) -> Value:
    """Convert elements to the other 8-bit type, in each run of the model."""
    if elements.dtype == INT8:
        return elements.op.BitwiseXor(elements.cast(UINT8), OFFSET)
    return elements.op.BitwiseXor(elements, OFFSET).cast(INT8)
