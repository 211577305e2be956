"""Divisions of integers by -1: for the lowest integer the processor raises a signal, which would end the process.

ONNX Runtime tests divisors only for 0. So this module makes the model negate, which wraps around, instead of dividing
by -1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nnrt_backend_onnxruntime.programs.skeleton import place_of
from nnrt_hdi.errors import Unsupported

# The types for which the processor raises the signal, and 0 for an unknown type.
RISKY = (TensorProto.INT32, TensorProto.INT64, 0)

_FIRST_WHERE = 9
_FIRST_CAST_LIKE = 15


@dataclass(frozen=True, slots=True)
class Divisions:
    """Nodes of a graph whose divisor may be -1: the data type of each by its index."""

    graph: onnx.GraphProto
    types: dict[int, int]


def guard_divisions(divisions: Sequence[Divisions], opset: int) -> None:
    """Replace these divisions by nodes that negate where the divisor is -1. Inner graphs come before outer ones."""
    for found in divisions:
        nodes = [
            made
            for at, node in enumerate(found.graph.node)
            for made in (_guarded(node, found.types[at], opset) if at in found.types else [node])
        ]
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del found.graph.node[:]
        found.graph.node.extend(kept)


def _guarded(node: onnx.NodeProto, data_type: int, opset: int) -> Iterator[onnx.NodeProto]:
    least = _FIRST_WHERE if data_type else _FIRST_CAST_LIKE
    if opset < least:
        raise Unsupported(
            f"it may divide the lowest integer by -1; export the model with operator set {least} or later",
            place=place_of(node),
        )
    (a, b), (y,) = node.input, node.output
    one, minus_one, is_bad, divisor, negated, quotient = (
        f"{y}/{name}" for name in ("one", "minus_one", "is_bad", "divisor", "negated", "quotient")
    )
    for name, value in ((one, 1), (minus_one, -1)):
        if data_type:
            number = np.array(value, helper.tensor_dtype_to_np_dtype(data_type))
            yield helper.make_node("Constant", [], [name], value=numpy_helper.from_array(number))
        else:
            number = np.array(value, np.float32)
            yield helper.make_node("Constant", [], [f"{name}/real"], value=numpy_helper.from_array(number))
            yield helper.make_node("CastLike", [f"{name}/real", b], [name])
    yield helper.make_node("Equal", [b, minus_one], [is_bad])
    yield helper.make_node("Where", [is_bad, one, b], [divisor])
    yield helper.make_node("Div", [a, divisor], [quotient], node.name)
    yield helper.make_node("Neg", [a], [negated])
    yield helper.make_node("Where", [is_bad, negated, quotient], [y])
