"""Changes to models that make OpenVINO keep NaN, and the order of equal elements.

Without them OpenVINO computes a number for max(NaN, 1), infinity for exp(NaN), and sorts equal elements in any order.
"""

from typing import Any

import numpy as np
from openvino import Type
from openvino import opset13 as ops

REAL = frozenset({Type.f16, Type.f32})
# Operators whose result must be NaN where an operand is NaN.
PASS_ON = frozenset({"Clamp", "Exp", "Maximum", "Minimum", "Relu"})
# Operators that OpenVINO computes wrongly for NaN, and equivalents with swapped operands, which it computes correctly.
MIRRORED = {"Greater": ops.less, "GreaterEqual": ops.less_equal}


def keep_nan(model: Any) -> None:
    """Change a model that OpenVINO has read, so that it computes NaN where ONNX does."""
    for node in model.get_ordered_ops():
        operands = node.input_values()
        if not operands or operands[0].get_element_type() not in REAL:
            continue
        targets = node.output(0).get_target_inputs()
        right = _replacement(node, operands)
        if right is not None:
            for target in targets:
                target.replace_source_output(right.output(0))


def keep_order(model: Any) -> None:
    """Change a model that OpenVINO has read so that TopK keeps the order of equal elements."""
    for node in model.get_ordered_ops():
        if node.get_type_name() != "TopK":
            continue
        attrs = node.get_attributes()
        data, count = node.input_values()
        stable = ops.topk(
            data, count, attrs["axis"], attrs["mode"], attrs["sort"], attrs["index_element_type"], stable=True
        )
        for old, new in zip(node.outputs(), stable.outputs(), strict=True):
            for target in old.get_target_inputs():
                target.replace_source_output(new)


def _replacement(node: Any, operands: list[Any]) -> Any:
    """Return a node's replacement that computes NaN correctly, or None if the node needs none."""
    kind = node.get_type_name()
    if kind in MIRRORED:
        return MIRRORED[kind](operands[1], operands[0])
    if kind == "Softmax":  # A row of infinities gives 0, though its elements should add up to 1.
        axis = ops.constant([node.get_attributes()["axis"]], Type.i64)
        is_one = ops.less(_number(0.5, operands[0]), ops.reduce_sum(node, axis, True))
        return ops.select(is_one, node, _number(np.nan, operands[0]))
    if kind == "Convert" and node.get_output_element_type(0) == Type.boolean:
        return ops.not_equal(operands[0], _number(0, operands[0]))
    if kind not in PASS_ON:
        return None
    result = node
    for operand in operands:
        result = ops.select(ops.is_nan(operand), operand, result)
    return result


def _number(number: float, like: Any) -> Any:
    return ops.constant(number, like.get_element_type())
