"""Operations that move elements without changing them: reshaping, transposing, joining, cutting, repeating, padding."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import MANY, Call, operation, refuse
from nnrt_client.model.operations.parameter import choice, integer, ints, number
from nnrt_hdi.enums import DataType, NodeType, PaddingMode
from nnrt_hdi.graph import AttrValue


def _split(call: Call) -> dict[str, AttrValue]:
    """Set `output_num`, which NNRt always sends, from the parameter, the outputs or `size_splits`."""
    sizes = call.attrs.get("size_splits", ())
    count = call.integer("output_num", 0) or call.outputs or len(sizes if isinstance(sizes, tuple) else ())
    if not count:
        refuse("the number of its outputs is not known; give output_num, size_splits or the outputs")
    if call.outputs not in (None, count):
        refuse(f"output_num is {count} but there are {call.outputs} outputs; give as many")
    return {"output_num": count}


OPERATIONS = (
    operation(OperationType.RESHAPE, NodeType.RESHAPE, inputs=2),
    operation(OperationType.TRANSPOSE, NodeType.TRANSPOSE, inputs=2, sets_quant_type=False),
    operation(OperationType.CONCAT, NodeType.CONCAT, integer("axis", TensorType.CONCAT_AXIS), inputs=(2, MANY)),
    operation(
        OperationType.STACK,
        NodeType.STACK,
        integer("axis", TensorType.STACK_AXIS),
        inputs=(2, MANY),
        sets_quant_type=False,
    ),
    operation(
        OperationType.SPLIT,
        NodeType.SPLIT,
        integer("axis", TensorType.SPLIT_AXIS),
        integer("output_num", TensorType.SPLIT_OUTPUT_NUM),
        ints("size_splits", TensorType.SPLIT_SIZE_SPLITS),
        outputs=(1, MANY),
        derive=_split,
    ),
    operation(
        OperationType.UNSTACK,
        NodeType.UNSTACK,
        integer("axis", TensorType.UNSTACK_AXIS, DataType.INT32),
        outputs=(1, MANY),
        sets_quant_type=False,
    ),
    operation(OperationType.SLICE, NodeType.SLICE_FUSION, ints("axes", TensorType.SLICE_AXES), inputs=3),
    operation(
        OperationType.CROP,
        NodeType.CROP,
        integer("axis", TensorType.CROP_AXIS),
        ints("offset", TensorType.CROP_OFFSET),
        inputs=2,
        sets_quant_type=False,
    ),
    operation(
        OperationType.STRIDED_SLICE,
        NodeType.STRIDED_SLICE,
        integer("begin_mask", TensorType.STRIDED_SLICE_BEGIN_MASK),
        integer("end_mask", TensorType.STRIDED_SLICE_END_MASK),
        integer("ellipsis_mask", TensorType.STRIDED_SLICE_ELLIPSIS_MASK),
        integer("new_axis_mask", TensorType.STRIDED_SLICE_NEW_AXIS_MASK),
        integer("shrink_axis_mask", TensorType.STRIDED_SLICE_SHRINK_AXIS_MASK),
        inputs=4,
        sets_quant_type=False,
    ),
    operation(
        OperationType.TILE, NodeType.TILE_FUSION, ints("dims", TensorType.TILE_DIMS), inputs=2, sets_quant_type=False
    ),
    operation(
        OperationType.BROADCAST_TO,
        NodeType.BROADCAST_TO,
        ints("shape", TensorType.BROADCAST_TO_SHAPE),
        sets_quant_type=False,
    ),
    # The attribute `paddings` stays empty, because they are the second input.
    operation(
        OperationType.PAD,
        NodeType.PAD_FUSION,
        number("constant_value", TensorType.PAD_CONSTANT_VALUE, or_like_input=True),
        choice("padding_mode", TensorType.PAD_PADDING_MODE, PaddingMode, DataType.INT32),
        inputs=2,
    ),
    operation(OperationType.SQUEEZE, NodeType.SQUEEZE, ints("axis", TensorType.SQUEEZE_AXIS)),
    operation(OperationType.UNSQUEEZE, NodeType.UNSQUEEZE, ints("axis", TensorType.UNSQUEEZE_AXIS)),
    operation(OperationType.EXPAND_DIMS, NodeType.EXPAND_DIMS, inputs=2, sets_quant_type=False),
    operation(OperationType.FLATTEN, NodeType.FLATTEN, integer("axis", TensorType.FLATTEN_AXIS), sets_quant_type=False),
    operation(OperationType.SHAPE, NodeType.SHAPE, sets_quant_type=False),
    operation(OperationType.RANK, NodeType.RANK, sets_quant_type=False),
)
