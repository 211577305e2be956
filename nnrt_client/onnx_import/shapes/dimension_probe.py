"""The dimension probe finds out which dimension of an output is one of an operand, where both are known only in a run.

It asks the operator itself: what would it give if each unknown dimension had a number of its own? Where the answer is
that number, for two sets of numbers that have nothing in common, the dimension is the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnrt_client.model.model import Model, parts_of
from nnrt_client.onnx_import.shapes.dims import Dim, Dims, Number, unlike
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Node
from nnrt_hdi.ops import infer_node
from nnrt_hdi.tensor import Shape

# Primes, so that what is computed of several is none of them; of four large ones the elements can still be counted.
_NUMBERS = (
    (211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271),
    (30011, 30013, 30029, 30047, 30059, 30071, 30089, 30091, 30097, 30103, 30109, 30113),
)


def output_dims(model: Model, given: Sequence[Dims | None]) -> list[Dims]:
    """The dimensions of the outputs of the operation that was added last.

    `given` are those of its operands, None for one that has no unknown ones.
    """
    outputs = [tensor.spec for tensor in parts_of(model).last_operation.outputs]
    shapes = [spec.shape for spec in outputs]
    if not any(spec.is_dynamic for spec in outputs):
        return list(shapes)
    unknown = list(dict.fromkeys(dim for dims in given for dim in dims or () if isinstance(dim, Dim)))
    probes = [dict(zip(unknown, numbers, strict=False)) for numbers in _NUMBERS]
    is_enough = len(unknown) <= len(_NUMBERS[0])
    answers = [_shapes(model, given, numbers) if is_enough else None for numbers in probes]
    return [
        tuple(size if size >= 0 else _same(probes, answers, at, axis) for axis, size in enumerate(shape))
        for at, shape in enumerate(shapes)
    ]


def _same(probes: Sequence[Mapping[Dim, int]], answers: Sequence[Sequence[Shape] | None], at: int, axis: int) -> Number:
    """The dimension whose number each answer has; without one, a number like no other."""
    for dim in probes[0]:
        if all(
            answer is not None and answer[at][axis] == numbers.get(dim)
            for numbers, answer in zip(probes, answers, strict=True)
        ):
            return dim
    return unlike()


def _shapes(model: Model, given: Sequence[Dims | None], numbers: Mapping[Dim, int]) -> list[Shape] | None:
    """The shapes that the outputs would have; None where the operator refuses."""
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
