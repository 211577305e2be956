"""Refused operators with a height and a width."""

from nnrt_hdi.enums import DataType, NodeType, ResizeMethod

from .case import Case, t

IMAGE = t(4, 6, 8, 12)
SIZE = {"new_height": 3, "new_width": 5}
BOXES = [t(1, 6, 4), t(1, 6, 3), t(6, 4)]
DETECT = {"scale": (10.0, 10.0, 5.0, 5.0), "num_classes": 2, "nms_io_u_threshold": 0.5, "max_detections": 3}

CASES: list[Case] = [
    (NodeType.RESIZE, [IMAGE], {"new_height": 3}, "new_width is 0; use 1 or more"),
    (NodeType.RESIZE, [IMAGE], {**SIZE, "new_height": -2}, "new_height is -2; use 1 or more"),
    (NodeType.RESIZE, [t(6, 8, 12)], SIZE, r"x has rank 3 .* use rank 4"),
    (NodeType.RESIZE, [IMAGE], {**SIZE, "exclude_outside": 2}, "exclude_outside is 2; use 0 or 1"),
    (NodeType.RESIZE, [IMAGE], {**SIZE, "method": ResizeMethod.UNKNOWN}, "UNKNOWN; use LINEAR, NEAREST or CUBIC"),
    (
        NodeType.RESIZE,
        [t(1, 2, 3, 4, data_type=DataType.INT32)],
        SIZE,
        "LINEAR of INT32 is not defined; use a floating-point type, or NEAREST",
    ),
    (NodeType.RESIZE, [t(1, 0, 3, 4)], SIZE, r"x FLOAT32\[1, 0, 3, 4\] has no pixels to resize"),
    (NodeType.BATCH_TO_SPACE_ND, [IMAGE], {}, r"block_shape is \[\]; use 2 values of 1 or more"),
    (NodeType.BATCH_TO_SPACE_ND, [IMAGE], {"block_shape": (0, 1)}, r"block_shape is \[0, 1\]; use 2 values"),
    (NodeType.BATCH_TO_SPACE_ND, [IMAGE], {"block_shape": (1, 3)}, "a batch of 4, which blocks of 3 do not divide"),
    (
        NodeType.BATCH_TO_SPACE_ND,
        [IMAGE],
        {"block_shape": (2, 2), "crops": ((6, 7), (0, 0))},
        r"crops \[6, 7\] take more than the height of 12 .* crop less",
    ),
    (
        NodeType.BATCH_TO_SPACE_ND,
        [IMAGE],
        {"block_shape": (2, 2), "crops": ((1, 1),)},
        r"crops is \[\[1, 1\]\]; use \[\[top, bottom\], \[left, right\]\], each 0 or more",
    ),
    (
        NodeType.SPACE_TO_BATCH_ND,
        [IMAGE],
        {"block_shape": (2, 2), "paddings": ((0, 0), (0, -1))},
        r"paddings is \[\[0, 0\], \[0, -1\]\]; use .* each 0 or more",
    ),
    (
        NodeType.SPACE_TO_BATCH_ND,
        [IMAGE],
        {"block_shape": (2, 3)},
        "a padded width of 8, which blocks of 3 do not divide",
    ),
    (NodeType.DEPTH_TO_SPACE, [IMAGE], {}, "block_size is 0; use 1 or more"),
    (NodeType.DEPTH_TO_SPACE, [IMAGE], {"block_size": 3}, "channels of 12, which blocks of 9 do not divide"),
    (NodeType.DEPTH_TO_SPACE, [IMAGE], {"block_size": 2, "mode": "RCD"}, "mode is 'RCD'; use 'DCR' or 'CRD'"),
    (NodeType.SPACE_TO_DEPTH, [IMAGE], {"block_size": 4}, "a height of 6, which blocks of 4 do not divide"),
    (NodeType.SPACE_TO_DEPTH, [IMAGE], {"block_size": 1 << 40}, "a height of 6, which blocks of"),
    (
        NodeType.DETECTION_POST_PROCESS,
        [t(2, 6, 4), *BOXES[1:]],
        DETECT,
        r"dimension 0 of bbox FLOAT32\[2, 6, 4\] is 2; use 1",
    ),
    (
        NodeType.DETECTION_POST_PROCESS,
        [t(1, 6, 3), *BOXES[1:]],
        DETECT,
        r"dimension 2 of bbox FLOAT32\[1, 6, 3\] is 3; use 4 or more",
    ),
    (
        NodeType.DETECTION_POST_PROCESS,
        [t(1, 6, 4, data_type=DataType.FLOAT16), *BOXES[1:]],
        DETECT,
        "bbox is FLOAT16 but scores is FLOAT32; give both the same data type",
    ),
    (NodeType.DETECTION_POST_PROCESS, [*BOXES[:2], t(5, 4)], DETECT, "differ in their number of boxes"),
    (
        NodeType.DETECTION_POST_PROCESS,
        BOXES,
        {**DETECT, "num_classes": 1},
        r"num_classes is 1 but scores FLOAT32\[1, 6, 3\] has 3 columns; use that number, or one less",
    ),
    (NodeType.DETECTION_POST_PROCESS, BOXES, {**DETECT, "scale": (1.0, 1.0)}, r"scale is \[1.0, 1.0\]; use 4 values"),
    (NodeType.DETECTION_POST_PROCESS, BOXES, {**DETECT, "nms_io_u_threshold": 1.5}, r"is 1.5; use 0\.\.1"),
    (
        NodeType.DETECTION_POST_PROCESS,
        BOXES,
        {**DETECT, "max_detections": -1},
        "max_detections is -1, .* use 0 or more",
    ),
]
