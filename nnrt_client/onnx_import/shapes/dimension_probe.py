"""Dimension probe: finds which unknown dimension of an output equals an unknown dimension of an operand.

It replaces each unknown dimension of the operands by a different number and infers the output's shape. If an output
dimension has that number, in two trials with different numbers, the two dimensions are equal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnrt_client.model.model import Model, parts_of
from nnrt_client.onnx_import.shapes.dims import Dim, Dims, Number, new_dim
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Node
from nnrt_hdi.ops import infer_node
from nnrt_hdi.tensor import Shape

# Primes, so that numbers computed from several are not among them. The product of four large ones fits into 64 bits.
_NUMBERS = (
    (211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271),
    (30011, 30013, 30029, 30047, 30059, 30071, 30089, 30091, 30097, 30103, 30109, 30113),
)


def output_dims(model: Model, given: Sequence[Dims | None]) -> list[Dims]:
    """Return the dimensions of the outputs of the model's last operation.

    `given` are the dimensions of its operands, None for an operand without unknown dimensions.
    """
    outputs = [tensor.spec for tensor in parts_of(model).last_operation.outputs]
    shapes = [spec.shape for spec in outputs]
    if not any(spec.is_dynamic for spec in outputs):
        return list(shapes)
    unknown = list(dict.fromkeys(dim for dims in given for dim in dims or () if isinstance(dim, Dim)))
    probes = [dict(zip(unknown, numbers, strict=False)) for numbers in _NUMBERS]
    is_enough = len(unknown) <= len(_NUMBERS[0])
    answers = [_infer_shapes(model, given, numbers) if is_enough else None for numbers in probes]
    return [
        tuple(size if size >= 0 else _find(probes, answers, at, axis) for axis, size in enumerate(shape))
        for at, shape in enumerate(shapes)
    ]


def _find(probes: Sequence[Mapping[Dim, int]], answers: Sequence[Sequence[Shape] | None], at: int, axis: int) -> Number:
    """Return the operands' dimension that an output's dimension equals in every answer, or else a new unknown one."""
    for dim in probes[0]:
        if all(
            answer is not None and answer[at][axis] == numbers.get(dim)
            for numbers, answer in zip(probes, answers, strict=True)
        ):
            return dim
    return new_dim()


def _infer_shapes(model: Model, given: Sequence[Dims | None], numbers: Mapping[Dim, int]) -> list[Shape] | None:
    """Return the shapes that the outputs would have, or None if the operator refuses the operands."""
    operation = parts_of(model).last_operation
    operands = []
    for record, dims in zip(operation.inputs, given, strict=True):
        shape = tuple(numbers.get(dim, -1) if isinstance(dim, Dim) else dim for dim in dims or record.spec.shape)
        operands.append((replace(record.spec, shape=shape), record.shape_value))
    declared = tuple(tensor.spec for tensor in operation.outputs)
    node = Node(operation.node_type, (), (), operation.attrs)
    try:
        return [spec.shape for spec in infer_node(node, operands, declared)]
    except NnrtError:
        return None
