"""Operators that know the height and width of images: resizing, rearranging, detection.

The format of x says which dimensions are height and width (see `ImageShape`). An attribute `format` is ignored, because
NNRt always sends NCHW.
"""

from dataclasses import replace
from typing import Annotated

from nnrt_hdi.enums import CoordinateTransformMode, DataType, Format, NearestMode, NodeType, ResizeMethod
from nnrt_hdi.ops.convolution import ImageShape
from nnrt_hdi.ops.operands import ANY, FLOATS, common_dim, declared_data_type, same_data_type
from nnrt_hdi.ops.operator import Accepts, Floats, IntLists, Ints, Operand, operator, refuse
from nnrt_hdi.tensor import MAX_DIM, UNKNOWN_DIM, TensorSpec

AnyImage = Annotated[Operand, Accepts(ANY, min_rank=4, max_rank=4, quantized=True)]

Pair = tuple[int, int]

# The numbers of a box that DETECTION_POST_PROCESS reads.
BOX_NUMBERS = 4


@operator(NodeType.RESIZE, quantized=True)
def resize(
    x: Annotated[Operand, Accepts(ANY, min_rank=4, max_rank=4)],
    *,
    method: ResizeMethod = ResizeMethod.LINEAR,
    new_height: int = 0,
    new_width: int = 0,
    preserve_aspect_ratio: bool = False,
    coordinate_transform_mode: CoordinateTransformMode = CoordinateTransformMode.ASYMMETRIC,
    cubic_coeff: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    nearest_mode: NearestMode = NearestMode.NORMAL,
) -> TensorSpec:
    """y = x resized to new_height and new_width; with preserve_aspect_ratio to the largest size in them with x's ratio.

    Row i, and column i likewise, reads x at p = i old / new (ASYMMETRIC), i (old - 1) / (new - 1) (ALIGN_CORNERS) or (i
    + 0.5) old / new - 0.5 (HALF_PIXEL), the last two at 0 where new is 1. LINEAR weights the two neighbours of p by
    their nearness, CUBIC weights four of them by the kernel of R. Keys (1981) with a = cubic_coeff. NEAREST, which
    takes any data type, rounds p down (FLOOR), up (CEIL) or to the nearest, with halves down (ROUND_HALF_DOWN), up
    (ROUND_HALF_UP) or away from 0 (NORMAL). Neighbours outside of x are its edge; with exclude_outside 1 only those
    inside count. extrapolation_value is ignored.
    """
    if method is ResizeMethod.UNKNOWN:
        refuse("method is UNKNOWN; use LINEAR, NEAREST or CUBIC")
    if method is not ResizeMethod.NEAREST and x.data_type not in FLOATS:
        refuse(f"{method.name} of {x.data_type.name} is not defined; use a floating-point type, or NEAREST")
    if exclude_outside not in (0, 1):
        refuse(f"exclude_outside is {exclude_outside}; use 0 or 1")
    for name, size in (("new_height", new_height), ("new_width", new_width)):
        if not 1 <= size <= MAX_DIM:
            refuse(f"{name} is {size}; use 1 or more")
    image = ImageShape.of(x.spec)
    if 0 in (image.height, image.width):
        refuse(f"{x} has no pixels to resize; give it a height and width of 1 or more")
    height, width = new_height, new_width
    if preserve_aspect_ratio:
        height, width = _with_ratio(image, new_height, new_width)
    return x.spec.with_shape(replace(image, height=height, width=width).ordered_like(x.spec))


@operator(NodeType.BATCH_TO_SPACE_ND)
def batch_to_space(x: AnyImage, *, block_shape: Ints = (), crops: IntLists = ()) -> TensorSpec:
    """y[b, h rows + r, w columns + c] = x[(r columns + c) batch + b, h, w], with block_shape [rows, columns].

    Then crops [[top, bottom], [left, right]] (empty: none) are cut off. The order of elements is TensorFlow Lite's.
    """
    image, (rows, columns) = ImageShape.of(x.spec), block_pair(block_shape)
    vertical, horizontal = borders("crops", crops)
    height = _cropped("height", _times(image.height, rows), vertical)
    width = _cropped("width", _times(image.width, columns), horizontal)
    batch = _divided(x, "a batch", image.batch, rows * columns)
    return x.spec.with_shape(ImageShape(batch, height, width, image.channels).ordered_like(x.spec))


@operator(NodeType.SPACE_TO_BATCH_ND)
def space_to_batch(x: AnyImage, *, block_shape: Ints = (), paddings: IntLists = ()) -> TensorSpec:
    """y = the inverse of BATCH_TO_SPACE_ND: x with a border of zeros, cut into blocks whose pixels go to the batch.

    paddings is [[top, bottom], [left, right]] (empty: none).
    """
    image, (rows, columns) = ImageShape.of(x.spec), block_pair(block_shape)
    vertical, horizontal = borders("paddings", paddings)
    height = _divided(x, "a padded height", _padded(image.height, vertical), rows)
    width = _divided(x, "a padded width", _padded(image.width, horizontal), columns)
    batch = _times(image.batch, rows * columns)
    return x.spec.with_shape(ImageShape(batch, height, width, image.channels).ordered_like(x.spec))


@operator(NodeType.DEPTH_TO_SPACE)
def depth_to_space(x: AnyImage, *, block_size: int = 0, format: Format = Format.NONE, mode: str = "") -> TensorSpec:
    """y = x with the channels of each pixel rearranged to a block of block_size by block_size pixels.

    With mode DCR (or empty) channels are (row, column, new channel), with CRD (new channel, row, column).
    """
    if mode not in ("", "DCR", "CRD"):
        refuse(f"mode is {mode!r}; use 'DCR' or 'CRD'")
    image, block = ImageShape.of(x.spec), _block(block_size)
    channels = _divided(x, "channels", image.channels, block * block)
    result = ImageShape(image.batch, _times(image.height, block), _times(image.width, block), channels)
    return x.spec.with_shape(result.ordered_like(x.spec))


@operator(NodeType.SPACE_TO_DEPTH)
def space_to_depth(x: AnyImage, *, block_size: int = 0, format: Format = Format.NONE) -> TensorSpec:
    """y = x with each block of block_size by block_size pixels as one, with channels (row, column, old channel)."""
    image, block = ImageShape.of(x.spec), _block(block_size)
    height, width = _divided(x, "a height", image.height, block), _divided(x, "a width", image.width, block)
    result = ImageShape(image.batch, height, width, _times(image.channels, block * block))
    return x.spec.with_shape(result.ordered_like(x.spec))


@operator(NodeType.DETECTION_POST_PROCESS)
def detection_post_process(
    bbox: Annotated[Operand, Accepts(FLOATS, min_rank=3, max_rank=3)],
    scores: Annotated[Operand, Accepts(FLOATS, min_rank=3, max_rank=3)],
    anchors: Annotated[Operand, Accepts(FLOATS, min_rank=2, max_rank=2)],
    *,
    format: Format = Format.NONE,
    input_size: int = 0,
    scale: Floats = (),
    nms_io_u_threshold: float = 0.0,
    nms_score_threshold: float = 0.0,
    max_detections: int = 0,
    detections_per_class: int = 0,
    max_classes_per_detection: int = 0,
    num_classes: int = 0,
    use_regular_nms: bool = False,
    out_quantized: bool = False,
    declared: tuple[TensorSpec, ...],
) -> tuple[TensorSpec, ...]:
    """y = the best of many overlapping boxes, as TensorFlow Lite's operator TFLite_Detection_PostProcess finds them.

    A box [y, x, h, w] of bbox [1, boxes, 4 or more], of which the first four numbers count, has its center at y /
    scale[0] anchor h + anchor y, and the height exp(h / scale[2]) anchor h; x and w likewise. scores [1, boxes,
    num_classes or one more in front, for the background]. From the highest score down to nms_score_threshold, a box is
    selected unless it overlaps an earlier selected one by more than nms_io_u_threshold (intersection / union). With
    use_regular_nms this is done class by class, for at most detections_per_class (0: max_detections) boxes of each, and
    the max_detections best are kept. Without, it is done once for the best class of each box, and the box gets its
    max_classes_per_detection (0: 1) best classes.

    Outputs, for n = max_detections max_classes_per_detection rows, with unused rows 0: the corners [1, n, (ymin, xmin,
    ymax, xmax)]; classes [1, n]; scores [1, n]; number of selected boxes [1]. They are FLOAT32, or FLOAT16 if the
    operands are and the model doesn't declare FLOAT32. input_size and out_quantized are ignored.
    """
    is_half = same_data_type(bbox, scores, anchors) is DataType.FLOAT16
    allowed = (DataType.FLOAT16, DataType.FLOAT32) if is_half else (DataType.FLOAT32,)
    data_type = declared_data_type(declared, allowed[0])
    if data_type not in allowed:
        refuse(f"the output is declared {data_type.name}; use {' or '.join(kind.name for kind in allowed)}")
    _require_boxes(bbox, scores, anchors)
    if num_classes < 1 or scores.shape[2] not in (UNKNOWN_DIM, num_classes, num_classes + 1):
        refuse(f"num_classes is {num_classes} but {scores} has {scores.shape[2]} columns; use that number, or one less")
    if len(scale) != 4 or not all(value > 0 for value in scale):
        refuse(f"scale is {list(scale)}; use 4 values above 0, for y, x, h and w")
    if not 0 <= nms_io_u_threshold <= 1:
        refuse(f"nms_io_u_threshold is {nms_io_u_threshold}; use 0..1")
    if min(max_detections, detections_per_class, max_classes_per_detection) < 0:
        refuse(
            f"max_detections is {max_detections}, detections_per_class {detections_per_class} and"
            f" max_classes_per_detection {max_classes_per_detection}; use 0 or more for each"
        )
    rows = max_detections * (max_classes_per_detection or 1)
    return tuple(TensorSpec(data_type, shape) for shape in ((1, rows, 4), (1, rows), (1, rows), (1,)))


def _require_boxes(bbox: Operand, scores: Operand, anchors: Operand) -> None:
    """Refuse operands of DETECTION_POST_PROCESS that aren't one image with one number of boxes."""
    for operand, axis, size in ((bbox, 0, 1), (scores, 0, 1), (anchors, 1, 4)):
        if operand.shape[axis] not in (UNKNOWN_DIM, size):
            refuse(f"dimension {axis} of {operand} is {operand.shape[axis]}; use {size}")
    if 0 <= bbox.shape[2] < BOX_NUMBERS:
        refuse(f"dimension 2 of {bbox} is {bbox.shape[2]}; use {BOX_NUMBERS} or more")
    if common_dim((bbox.shape[1], scores.shape[1], anchors.shape[0])) is None:
        refuse(f"{bbox}, {scores} and {anchors} differ in their number of boxes; make them equal")


def block_pair(block_shape: Ints) -> Pair:
    """Return [rows, columns] of a block. Refuses other values."""
    if len(block_shape) != 2 or min(block_shape) < 1:
        refuse(f"block_shape is {list(block_shape)}; use 2 values of 1 or more, rows and columns")
    return block_shape[0], block_shape[1]


def borders(name: str, pairs: IntLists) -> tuple[Pair, Pair]:
    """Return [[top, bottom], [left, right]], zeros for an empty one. Refuses other values."""
    if not pairs:
        return (0, 0), (0, 0)
    if [len(pair) for pair in pairs] != [2, 2] or min(map(min, pairs)) < 0:
        refuse(f"{name} is {[list(pair) for pair in pairs]}; use [[top, bottom], [left, right]], each 0 or more")
    (top, bottom), (left, right) = pairs
    return (top, bottom), (left, right)


def _block(block_size: int) -> int:
    if block_size < 1:
        refuse(f"block_size is {block_size}; use 1 or more")
    return block_size


def _times(size: int, factor: int) -> int:
    return UNKNOWN_DIM if size == UNKNOWN_DIM else size * factor


def _padded(size: int, border: Pair) -> int:
    return UNKNOWN_DIM if size == UNKNOWN_DIM else size + sum(border)


def _cropped(name: str, size: int, border: Pair) -> int:
    if size == UNKNOWN_DIM:
        return UNKNOWN_DIM
    if size < sum(border):
        refuse(f"crops {list(border)} take more than the {name} of {size} that the blocks make; crop less")
    return size - sum(border)


def _divided(x: Operand, name: str, size: int, parts: int) -> int:
    if size == UNKNOWN_DIM:
        return UNKNOWN_DIM
    if size % parts:
        refuse(f"{x} has {name} of {size}, which blocks of {parts} do not divide")
    return size // parts


def _with_ratio(image: ImageShape, new_height: int, new_width: int) -> Pair:
    """Return the largest height and width within the new ones with the image's ratio, rounded, at least 1."""
    if UNKNOWN_DIM in (image.height, image.width):
        return UNKNOWN_DIM, UNKNOWN_DIM
    if new_height * image.width <= new_width * image.height:
        return new_height, max(1, (2 * image.width * new_height + image.height) // (2 * image.height))
    return max(1, (2 * image.height * new_width + image.width) // (2 * image.width)), new_width
