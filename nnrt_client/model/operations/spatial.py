"""Operations on the height and width of images: resizing, rearranging, detection."""

from dataclasses import replace
from enum import IntEnum
from typing import Any

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import operation
from nnrt_client.model.operations.parameter import Parameter, boolean, choice, integer, ints, number, numbers
from nnrt_hdi.enums import CoordinateTransformMode, DataType, Format, NearestMode, NodeType, ResizeMethod
from nnrt_hdi.graph import AttrValue


class DepthToSpaceMode(IntEnum):
    """Order in which DEPTH_TO_SPACE reads channels, given by its number in NNRt and by its name in HDI."""

    DCR = 0
    CRD = 1


class Switch(IntEnum):
    """Truth value that NNRt passes as a number."""

    NO = 0
    YES = 1


# NNRt always sends NCHW here. The layout is that of the input.
NO_LAYOUT = {"format": Format.NCHW}


def _borders(attr: str, tensor_type: TensorType) -> Parameter:
    """Declare a parameter [[top, bottom], [left, right]]."""

    def convert(values: list[Any]) -> AttrValue:
        return tuple(values[:2]), tuple(values[2:])

    return replace(ints(attr, tensor_type, 4), convert=convert)


OPERATIONS = (
    operation(
        OperationType.RESIZE_BILINEAR,
        NodeType.RESIZE,
        integer("new_height", TensorType.RESIZE_BILINEAR_NEW_HEIGHT),
        integer("new_width", TensorType.RESIZE_BILINEAR_NEW_WIDTH),
        boolean("preserve_aspect_ratio", TensorType.RESIZE_BILINEAR_PRESERVE_ASPECT_RATIO),
        choice(
            "coordinate_transform_mode",
            TensorType.RESIZE_BILINEAR_COORDINATE_TRANSFORM_MODE,
            CoordinateTransformMode,
            DataType.INT8,
            DataType.INT32,
        ),
        choice(
            "exclude_outside",
            TensorType.RESIZE_BILINEAR_EXCLUDE_OUTSIDE,
            Switch,
            DataType.INT64,
            table={Switch.NO: 0, Switch.YES: 1},
        ),
        fixed={
            "method": ResizeMethod.LINEAR,
            "cubic_coeff": 0.0,
            "extrapolation_value": 0.0,
            "nearest_mode": NearestMode.NORMAL,
        },
    ),
    operation(
        OperationType.BATCH_TO_SPACE_ND,
        NodeType.BATCH_TO_SPACE_ND,
        ints("block_shape", TensorType.BATCH_TO_SPACE_ND_BLOCKSIZE, 2),
        _borders("crops", TensorType.BATCH_TO_SPACE_ND_CROPS),
        node_name="BatchToSpaceND",
    ),
    operation(
        OperationType.SPACE_TO_BATCH_ND,
        NodeType.SPACE_TO_BATCH_ND,
        ints("block_shape", TensorType.SPACE_TO_BATCH_ND_BLOCK_SHAPE, 2),
        _borders("paddings", TensorType.SPACE_TO_BATCH_ND_PADDINGS),
        node_name="SpaceToBatchND",
    ),
    operation(
        OperationType.DEPTH_TO_SPACE,
        NodeType.DEPTH_TO_SPACE,
        integer("block_size", TensorType.DEPTH_TO_SPACE_BLOCK_SIZE),
        choice(
            "mode",
            TensorType.DEPTH_TO_SPACE_MODE,
            DepthToSpaceMode,
            DataType.INT32,
            table={mode: mode.name for mode in DepthToSpaceMode},
        ),
        fixed=NO_LAYOUT,
        sets_quant_type=False,
    ),
    operation(
        OperationType.SPACE_TO_DEPTH,
        NodeType.SPACE_TO_DEPTH,
        integer("block_size", TensorType.SPACE_TO_DEPTH_BLOCK_SIZE),
        fixed=NO_LAYOUT,
        sets_quant_type=False,
    ),
    operation(
        OperationType.DETECTION_POST_PROCESS,
        NodeType.DETECTION_POST_PROCESS,
        integer("input_size", TensorType.DETECTION_POST_PROCESS_INPUT_SIZE),
        numbers("scale", TensorType.DETECTION_POST_PROCESS_SCALE),
        replace(
            number("nms_io_u_threshold", TensorType.DETECTION_POST_PROCESS_NMS_IOU_THRESHOLD),
            keyword="nms_iou_threshold",
        ),
        number("nms_score_threshold", TensorType.DETECTION_POST_PROCESS_NMS_SCORE_THRESHOLD),
        integer("max_detections", TensorType.DETECTION_POST_PROCESS_MAX_DETECTIONS),
        integer("detections_per_class", TensorType.DETECTION_POST_PROCESS_DETECTIONS_PER_CLASS),
        integer("max_classes_per_detection", TensorType.DETECTION_POST_PROCESS_MAX_CLASSES_PER_DETECTION),
        integer("num_classes", TensorType.DETECTION_POST_PROCESS_NUM_CLASSES),
        boolean("use_regular_nms", TensorType.DETECTION_POST_PROCESS_USE_REGULAR_NMS),
        boolean("out_quantized", TensorType.DETECTION_POST_PROCESS_OUT_QUANTIZED),
        inputs=3,
        outputs=4,
        fixed=NO_LAYOUT,
        sets_quant_type=False,
    ),
)
