"""Image networks: convolutions, depthwise convolutions, residual blocks, a U-Net, a detection head."""

from collections.abc import Iterator

from nnrt_client.conformance.cases.graphs.net import Made, Net, Network
from nnrt_hdi.enums import ActivationType, CoordinateTransformMode, Format, NodeType, PadMode, ReduceMode, ResizeMethod

N = NodeType
RELU = {"activation_type": ActivationType.RELU}
RELU6 = {"activation_type": ActivationType.RELU6}
SAME = {"pad_mode": PadMode.SAME}
BOTH = (Format.NHWC, Format.NCHW)


def networks() -> Iterator[Network]:
    """Yield the image networks."""
    yield Network("small_cnn", small_cnn, "convolution", layouts=BOTH, also_half=True)
    yield Network("small_cnn_half", small_cnn, "convolution", dtypes=("f2",))
    yield Network("small_cnn_double", small_cnn, "convolution", dtypes=("f8",))
    yield Network("depthwise", depthwise, "convolution", layouts=BOTH, also_half=True)
    yield Network("residual", residual, "convolution", layouts=BOTH, also_half=True)
    yield Network("inception", inception, "convolution", layouts=BOTH)
    yield Network("squeeze_and_excite", squeeze_and_excite, "convolution", layouts=BOTH)
    yield Network("u_net", u_net, "convolution", layouts=BOTH, also_half=True)
    yield Network("batch_norms", batch_norms, "normalization", layouts=BOTH)
    yield Network("super_resolution", super_resolution, "spatial", layouts=BOTH)
    yield Network("dynamic_batch", dynamic_batch, "convolution", layouts=BOTH)
    yield Network("dynamic_image", dynamic_image, "convolution", layouts=BOTH)
    yield Network("autoencoder", autoencoder, "convolution", layouts=BOTH)
    yield Network("dilated", dilated, "convolution", layouts=BOTH)
    yield Network("style", style, "normalization", layouts=BOTH)
    yield Network("detection_head", detection_head, "spatial")
    yield Network("two_images", two_images, "convolution", layouts=BOTH)


def conv(net: Net, x: int, out: int, kernel: int = 3, **attrs: object) -> int:
    """Add a convolution with weights of its own."""
    group = attrs.get("group", 1)
    assert isinstance(group, int)
    channels = net.spec(x).shape[net.spec(x).channel_axis] // group
    merged = {**SAME, **attrs}
    return net.op(N.CONV2D_FUSION, x, net.images(out, kernel, kernel, channels), net.weights(out, size=0.2), **merged)


def flat(net: Net, x: int) -> int:
    """Flatten an image to one row."""
    return net.op(N.RESHAPE, x, net.ints(net.spec(x).shape[0], -1))


def dense(net: Net, x: int, out: int, **attrs: object) -> int:
    return net.op(
        N.FULL_CONNECTION, x, net.weights(out, net.spec(x).shape[1]), net.weights(out), has_bias=True, **attrs
    )


def mean_of_pixels(net: Net, x: int, *, keep_dims: bool = False) -> int:
    pixels = net.ints(*((1, 2) if net.layout is Format.NHWC else (2, 3)))
    return net.op(N.REDUCE_FUSION, x, pixels, mode=ReduceMode.MEAN, keep_dims=keep_dims)


def small_cnn(net: Net) -> Made:
    x = net.input(1, 12, 12, 1)
    y = conv(net, x, 4, stride=(1, 1), **RELU)
    y = net.op(N.MAX_POOL_FUSION, y, kernel_size=(2, 2), strides=(2, 2))
    y = conv(net, y, 8, pad_mode=PadMode.VALID, **RELU)
    y = net.op(N.AVGPOOL_FUSION, y, kernel_size=(2, 2), strides=(2, 2))
    scores = dense(net, flat(net, y), 10)
    best = net.op(N.SOFTMAX, scores, axis=(-1,))
    return net.graph(best, scores), [[net.reals(1, 12, 12, 1)], [net.reals(1, 12, 12, 1)]]


def depthwise(net: Net) -> Made:
    """Build a MobileNet block: expand, depthwise convolution, project, add."""
    x = net.input(1, 9, 7, 4)
    y = conv(net, x, 12, 1, **RELU6)
    y = conv(net, y, 12, 3, group=12, **RELU6)
    y = conv(net, y, 4, 1)
    y = net.op(N.ADD_FUSION, x, y)
    z = conv(net, y, 8, 1, **RELU6)
    z = conv(net, z, 8, 5, group=8, stride=(2, 2))
    z = net.op(N.ACTIVATION, z, activation_type=ActivationType.HSWISH)
    return net.graph(mean_of_pixels(net, z), z), [[net.reals(1, 9, 7, 4)]]


def residual(net: Net) -> Made:
    x = net.input(2, 8, 8, 3)
    stem = conv(net, x, 8, **RELU)
    y = conv(net, conv(net, stem, 8, **RELU), 8)
    first = net.op(N.ADD_FUSION, y, stem, **RELU)
    y = conv(net, conv(net, first, 16, stride=(2, 2), **RELU), 16)
    second = net.op(N.ADD_FUSION, y, conv(net, first, 16, 1, stride=(2, 2)), **RELU)
    pooled = net.op(N.AVGPOOL_FUSION, second, kernel_size=(4, 4), **{"global": True})
    return net.graph(dense(net, flat(net, pooled), 5)), [[net.reals(2, 8, 8, 3)], [net.reals(2, 8, 8, 3)]]


def inception(net: Net) -> Made:
    """Build parallel branches with different kernels."""
    x = net.input(1, 7, 7, 4)
    pool = net.op(N.MAX_POOL_FUSION, x, kernel_size=(3, 3), strides=(1, 1), pad_mode=PadMode.SAME)
    branches = [
        conv(net, x, 3, 1, **RELU),
        conv(net, conv(net, x, 2, 1), 3, 3),
        conv(net, x, 2, 5),
        conv(net, pool, 2, 1),
    ]
    y = net.op(N.CONCAT, *branches, axis=net.spec(x).channel_axis)
    return net.graph(net.op(N.ACTIVATION, y, activation_type=ActivationType.SWISH)), [[net.reals(1, 7, 7, 4)]]


def squeeze_and_excite(net: Net) -> Made:
    x = net.input(2, 6, 5, 8)
    y = conv(net, x, 8)
    squeezed = mean_of_pixels(net, y, keep_dims=True)
    gate = conv(net, conv(net, squeezed, 2, 1, **RELU), 8, 1)
    gate = net.op(N.ACTIVATION, gate, activation_type=ActivationType.HSIGMOID)
    return net.graph(net.op(N.MUL_FUSION, y, gate)), [[net.reals(2, 6, 5, 8)]]


def u_net(net: Net) -> Made:
    x = net.input(1, 8, 8, 2)
    down = conv(net, x, 4, **RELU)
    low = conv(net, net.op(N.MAX_POOL_FUSION, down, kernel_size=(2, 2), strides=(2, 2)), 8, **RELU)
    bottom = conv(net, net.op(N.MAX_POOL_FUSION, low, kernel_size=(2, 2), strides=(2, 2)), 8, **RELU)
    up = net.op(N.RESIZE, bottom, method=ResizeMethod.NEAREST, new_height=4, new_width=4)
    up = conv(net, net.op(N.CONCAT, up, low, axis=net.spec(x).channel_axis), 4, **RELU)
    weight = net.images(4, 2, 2, 4)
    up = net.op(N.CONV2D_TRANSPOSE_FUSION, up, weight, net.weights(4), stride=(2, 2), pad_mode=PadMode.VALID)
    both = net.op(N.CONCAT, up, down, axis=net.spec(x).channel_axis)
    mask = net.op(N.ACTIVATION, conv(net, both, 1, 1), activation_type=ActivationType.SIGMOID)
    return net.graph(mask), [[net.reals(1, 8, 8, 2)], [net.reals(1, 8, 8, 2)]]


def batch_norms(net: Net) -> Made:
    """Build batch norms after a convolution (foldable), before one, and after one whose output another node reads."""
    x = net.input(1, 6, 6, 3)

    def norm(y: int) -> int:
        channels = net.spec(y).shape[net.spec(y).channel_axis]
        four = [net.weights(channels, size=1) for _ in range(3)]
        positive = net.constant(net.numbers.reals(0.2, 2, (channels,)).astype(net.dtype))
        return net.op(N.FUSED_BATCH_NORM, y, *four, positive, epsilon=2.0**-10)

    first = conv(net, x, 4)
    y = net.op(N.ACTIVATION, norm(first), **RELU)
    z = norm(conv(net, norm(y), 4))
    shifted = net.op(N.BIAS_ADD, net.op(N.MUL_FUSION, z, net.scalar(0.5)), net.weights(4))
    return net.graph(shifted, first), [[net.reals(1, 6, 6, 3)]]


def super_resolution(net: Net) -> Made:
    x = net.input(1, 5, 6, 3)
    y = conv(net, x, 12)
    wide = net.op(N.DEPTH_TO_SPACE, y, block_size=2)
    half = {"coordinate_transform_mode": CoordinateTransformMode.HALF_PIXEL}
    soft = net.op(N.RESIZE, x, method=ResizeMethod.LINEAR, new_height=10, new_width=12, **half)
    return net.graph(net.op(N.ADD_FUSION, wide, soft), net.op(N.SPACE_TO_DEPTH, wide, block_size=2)), [
        [net.reals(1, 5, 6, 3)]
    ]


def dynamic_batch(net: Net) -> Made:
    x = net.input(-1, 6, 6, 2)
    y = net.op(N.MAX_POOL_FUSION, conv(net, x, 4, **RELU), kernel_size=(2, 2), strides=(2, 2))
    y = net.op(N.ADD_FUSION, y, conv(net, y, 4))
    row = net.op(N.RESHAPE, y, net.ints(-1, 36))
    z = net.op(N.FULL_CONNECTION, row, net.weights(5, 36), net.weights(5), has_bias=True)
    return net.graph(net.op(N.SOFTMAX, z, axis=(1,)), z), [[net.reals(count, 6, 6, 2)] for count in (1, 3, 2, 1)]


def dynamic_image(net: Net) -> Made:
    """Build a network for images of any height and width."""
    x = net.input(1, -1, -1, 2)
    y = conv(net, x, 4, stride=(2, 2), **RELU)
    y = conv(net, net.op(N.AVGPOOL_FUSION, y, kernel_size=(2, 2), strides=(1, 1), pad_mode=PadMode.SAME), 3)
    return net.graph(mean_of_pixels(net, y), y), [
        [net.reals(1, height, width, 2)] for height, width in ((8, 8), (5, 11), (9, 4), (8, 8))
    ]


def autoencoder(net: Net) -> Made:
    x = net.input(1, 8, 6, 2)
    y = conv(net, x, 4, stride=(2, 2), **RELU)
    for out in (3, 2):
        channels = net.spec(y).shape[net.spec(y).channel_axis]
        weight = net.images(out, 3, 3, channels)
        stride = (2, 2) if out == 2 else (1, 1)
        y = net.op(N.CONV2D_TRANSPOSE_FUSION, y, weight, net.weights(out), stride=stride, pad_mode=PadMode.SAME)
        y = net.op(N.ACTIVATION, y, activation_type=ActivationType.TANH)
    return net.graph(y, net.op(N.SQUARED_DIFFERENCE, x, y)), [[net.reals(1, 8, 6, 2)]]


def dilated(net: Net) -> Made:
    """Build a sum of dilated convolutions, one of them by SPACE_TO_BATCH_ND and back."""
    x = net.input(1, 12, 12, 3)
    branches = [conv(net, x, 4, dilation=(rate, rate)) for rate in (1, 2, 3)]
    blocks = net.op(N.SPACE_TO_BATCH_ND, x, block_shape=(2, 2), paddings=((0, 0), (0, 0)))
    by_blocks = net.op(N.BATCH_TO_SPACE_ND, conv(net, blocks, 4), block_shape=(2, 2), crops=((0, 0), (0, 0)))
    total = net.op(N.ADD_FUSION, net.op(N.ADD_FUSION, *branches[:2]), branches[2])
    return net.graph(net.op(N.ADD_FUSION, total, by_blocks, **RELU)), [[net.reals(1, 12, 12, 3)]]


def style(net: Net) -> Made:
    x = net.input(1, 7, 7, 3)
    y = conv(net, x, 4, pad_mode=PadMode.PAD, pad_list=(1, 1, 1, 1))
    y = net.op(N.INSTANCE_NORM, y, net.weights(4, size=1), net.weights(4), epsilon=2.0**-10)
    y = net.op(N.PRELU_FUSION, y, net.weights(4))
    y = net.op(N.LRN, y, depth_radius=1, alpha=0.25, beta=0.5, bias=1.0)
    return net.graph(y), [[net.reals(1, 7, 7, 3)]]


def detection_head(net: Net) -> Made:
    """Build a head that decodes boxes and scores of two feature maps and selects among them."""
    x = net.input(1, 4, 4, 6)
    small = conv(net, x, 6, stride=(2, 2), **RELU)
    boxes, scores = [], []
    for features in (x, small):
        boxes.append(net.op(N.RESHAPE, conv(net, features, 8, 1), net.ints(1, -1, 4)))
        scores.append(net.op(N.RESHAPE, conv(net, features, 8, 3), net.ints(1, -1, 4)))
    every = net.op(N.CONCAT, *boxes, axis=1)
    likely = net.op(N.ACTIVATION, net.op(N.CONCAT, *scores, axis=1), activation_type=ActivationType.SIGMOID)
    anchors = net.constant(net.numbers.reals(0.25, 0.75, (40, 4)).astype("f4"))
    found = net.ops(
        N.DETECTION_POST_PROCESS,
        every,
        likely,
        anchors,
        scale=(10.0, 10.0, 5.0, 5.0),
        num_classes=3,
        nms_io_u_threshold=0.5,
        nms_score_threshold=0.25,
        max_detections=8,
    )
    return net.graph(*found, every, likely), [[net.reals(1, 4, 4, 6)]]


def two_images(net: Net) -> Made:
    """Build a network that applies the same weights to two images and computes their distance."""
    a, b = net.input(1, 6, 6, 3), net.input(1, 6, 6, 3)
    weight, bias = net.images(4, 3, 3, 3), net.weights(4)
    left, right = (net.op(N.CONV2D_FUSION, x, weight, bias, **SAME, **RELU) for x in (a, b))
    apart = net.op(N.REDUCE_FUSION, net.op(N.SQUARED_DIFFERENCE, left, right), net.ints(1, 2, 3), mode=ReduceMode.SUM)
    return net.graph(net.op(N.SQRT, apart)), [[net.reals(1, 6, 6, 3), net.reals(1, 6, 6, 3)]]
