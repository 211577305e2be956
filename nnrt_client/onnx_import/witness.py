"""Which dimension of an output is which of an operand, where both are known only in a run.

The operator itself is asked: what would it give if each unknown dimension had a number of its own? Where the answer is
that number, for two sets of numbers that have nothing in common, the dimension is the same.
"""

from collections.abc import Sequence
from dataclasses import replace

from nnrt_client.model import Model
from nnrt_client.onnx_import.dims import Dim, Dims, unlike
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Node
from nnrt_hdi.ops import infer_node

# Primes, so that what is computed of several is none of them; even four large ones are elements that can be counted.
_NUMBERS = (
    (211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271),
    (30011, 30013, 30029, 30047, 30059, 30071, 30089, 30091, 30097, 30103, 30109, 30113),
)


def output_dims(model: Model, given: Sequence[Dims | None]) -> list[Dims]:
    """The dimensions of the outputs of the operation that was added last.

    `given` are those of its operands, None for one that has no unknown ones.
    """
    operation = model._operations[-1]
    outputs = tuple(model._tensors[index].spec for index in operation.outputs)
    unknown = list(dict.fromkeys(dim for dims in given for dim in dims or () if isinstance(dim, Dim)))
    answers: list[Sequence[Sequence[int]]] = []
    if unknown and len(unknown) <= len(_NUMBERS[0]) and any(spec.is_dynamic for spec in outputs):
        node = Node(operation.declared.node_type, (), (), operation.attrs)
        for numbers in _NUMBERS:
            told = dict(zip(unknown, numbers, strict=False))
            operands = []
            for index, dims in zip(operation.inputs, given, strict=True):
                record = model._tensors[index]
                shape = record.spec.shape if dims is None else [told.get(dim, dim) for dim in dims]  # type: ignore[call-overload]
                operands.append((replace(record.spec, shape=tuple(shape)), record.shape_value))
            try:
                answers.append([spec.shape for spec in infer_node(node, operands, outputs)])
            except NnrtError:
                answers.clear()
                break
    found = []
    for at, spec in enumerate(outputs):
        dims = []
        for axis, size in enumerate(spec.shape):
            said = [
                dict(zip(numbers, unknown, strict=False)).get(answer[at][axis])
                for numbers, answer in zip(_NUMBERS, answers, strict=False)
            ]
            same = said[0] if len(said) == len(_NUMBERS) and said[0] == said[1] else None
            dims.append(size if size >= 0 else same or unlike())
        found.append(tuple(dims))
    return found
