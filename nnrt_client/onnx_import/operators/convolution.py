"""Convolutions and pooling of NCHW images. Images of one dimension get a height of 1."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnrt_client.enums import Format, OperationType, PadMode
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.enums import RoundMode

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Attributes of all operators that slide a kernel over an image."""

    auto_pad: str = "NOTSET"
    dilations: Ints = ()
    kernel_shape: Ints = ()
    pads: Ints = ()
    strides: Ints = ()


@onnx_operator("Conv", is_quantizable=True, fuses=True)
def conv(
    op: NodeBuilder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    group: int = 1,
    window: Window,
) -> Value:
    """CONV2D with the Relu or Clip(0, 6) that follows; at rank 3 between UNSQUEEZE and SQUEEZE."""
    kernel = _kernel_size(x, weight, window.kernel_shape)
    if bias is None:
        bias = op.full((weight.shape[0],), 0, x.dtype if op.quant is None else np.dtype(np.int32))
    return _apply_to_images(
        op,
        OperationType.CONV2D,
        [x, weight, bias],
        _window_parameters(x, kernel, window),
        group=group,
        activation=op.activation(),
        quant=op.quant,
    )


@onnx_operator("ConvTranspose")
def conv_transpose(
    op: NodeBuilder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    group: int = 1,
    output_padding: Ints = (),
    output_shape: Ints = (),
    window: Window,
) -> Value:
    """CONV2D_TRANSPOSE, with the output channels of the weight first; at rank 3 between UNSQUEEZE and SQUEEZE."""
    kernel = _kernel_size(x, weight, window.kernel_shape)
    spatial = len(kernel)
    strides, dilations = window.strides or (1,) * spatial, window.dilations or (1,) * spatial
    extra = output_padding or (0,) * spatial
    if output_shape or window.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        sizes = x.shape[2:]
        if -1 in sizes:
            refuse(f"the height and width of {x} decide its padding; fix them")
        wanted = output_shape[-spatial:] or tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
        totals = [
            stride * (size - 1) + more + (k - 1) * dilation + 1 - want
            for stride, size, more, k, dilation, want in zip(
                strides, sizes, extra, kernel, dilations, wanted, strict=True
            )
        ]
        # Negative padding is extra output at the end.
        extra = tuple(more + max(-total, 0) for more, total in zip(extra, totals, strict=True))
        totals = [max(total, 0) for total in totals]
        window = replace(window, pads=_halve(totals, is_upper=window.auto_pad == "SAME_UPPER"), auto_pad="NOTSET")
    inner, outer = weight.shape[0] // group, weight.shape[1]
    parts = op.reshape(weight, (group, inner, outer, *weight.shape[2:]))
    turned = op.transpose(parts, [0, 2, 1, *range(3, parts.rank)])
    weight = op.reshape(turned, (group * outer, inner, *weight.shape[2:]))
    if bias is None:
        bias = op.full((group * outer,), 0, x.dtype)
    return _apply_to_images(
        op,
        OperationType.CONV2D_TRANSPOSE,
        [x, weight, bias],
        _window_parameters(x, kernel, window),
        group=group,
        output_paddings=(0, *extra) if spatial == 1 else extra,
        activation=op.activation(),
    )


@onnx_operator("MaxPool", is_quantizable=True, fuses=True)
def max_pool(op: NodeBuilder, x: Value, *, ceil_mode: int = 0, storage_order: int = 0, window: Window) -> Value:
    """MAX_POOL without the indices; at rank 3 between UNSQUEEZE and SQUEEZE."""
    return _pool(op, OperationType.MAX_POOL, x, ceil_mode, window)


@onnx_operator("AveragePool", is_quantizable=True, fuses=True)
def average_pool(op: NodeBuilder, x: Value, *, ceil_mode: int = 0, count_include_pad: int = 0, window: Window) -> Value:
    """AVG_POOL, after PAD if the padding counts; at rank 3 between UNSQUEEZE and SQUEEZE."""
    spatial = len(window.kernel_shape)
    steps = window.strides or (1,) * spatial
    if count_include_pad and window.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same_pads(x, window.kernel_shape, steps, (1,) * spatial, is_upper=window.auto_pad == "SAME_UPPER")
        window = replace(window, pads=pads, auto_pad="NOTSET")
    if not (count_include_pad and any(window.pads)):
        return _pool(op, OperationType.AVG_POOL, x, ceil_mode, window)
    if ceil_mode and any(
        (size + sum(window.pads[at::spatial]) - k) % step
        for at, (size, k, step) in enumerate(zip(x.shape[2:], window.kernel_shape, steps, strict=True))
    ):
        refuse("it rounds up and counts its padding, so that windows reach beyond both; use one of them")
    borders = np.zeros((x.rank, 2), np.int64)
    borders[2:] = np.reshape(window.pads, (2, -1)).T
    own = x.quantized.param if op.quant is not None and x.quantized is not None else None
    padded = op.apply(OperationType.PAD, op.nchw(x), borders, quant=own)
    return _pool(op, OperationType.AVG_POOL, padded, ceil_mode, replace(window, pads=()))


@onnx_operator("GlobalMaxPool", is_quantizable=True, fuses=True)
def global_max_pool(op: NodeBuilder, x: Value) -> Value:
    """MAX_POOL of the whole image; REDUCE_MAX unless the image has two dimensions."""
    return _pool_globally(op, OperationType.MAX_POOL, OperationType.REDUCE_MAX, x)


@onnx_operator("GlobalAveragePool", is_quantizable=True, fuses=True)
def global_average_pool(op: NodeBuilder, x: Value) -> Value:
    """AVG_POOL of the whole image; REDUCE_MEAN unless the image has two dimensions."""
    return _pool_globally(op, OperationType.AVG_POOL, OperationType.REDUCE_MEAN, x)


def _pool_globally(op: NodeBuilder, pool: OperationType, reduction: OperationType, x: Value) -> Value:
    if x.rank == 4:
        return op.apply(pool, op.nchw(x), global_=True, activation=op.activation(), quant=op.quant)
    return op.apply(reduction, x, np.arange(2, x.rank), keep_dims=True, quant=op.quant)


def _pool(op: NodeBuilder, type: OperationType, x: Value, ceil_mode: int, window: Window) -> Value:
    kernel = window.kernel_shape
    if any(dilation != 1 for dilation in window.dilations):
        refuse(f"its dilations are {list(window.dilations)}; NNRt pools without")
    if x.rank != len(kernel) + 2:
        refuse(f"its kernel_shape is {list(kernel)} but x is {x}")
    parameters = _window_parameters(x, kernel, replace(window, dilations=()))
    parameters["strides"] = parameters.pop("stride")
    parameters.pop("dilation")
    if "pad_list" in parameters:
        parameters["pad"] = parameters.pop("pad_list")
    return _apply_to_images(
        op,
        type,
        [x],
        parameters,
        kernel_size=(1, *kernel) if len(kernel) == 1 else kernel,
        round_mode=RoundMode.CEIL if ceil_mode else RoundMode.FLOOR,
        activation=op.activation(),
        quant=op.quant,
    )


def _apply_to_images(
    op: NodeBuilder, type: OperationType, operands: Sequence[Value], window: Any, **parameters: Any
) -> Value:
    """Apply an operation to NCHW images. Images of rank 3 get a height of 1."""
    x, rest = operands[0], operands[1:]
    is_flat = x.rank == 3
    images = [_as_image(op, value) for value in operands[:2]]
    y = op.apply(type, *images, *rest[1:], **window, **parameters)
    return op.squeeze(y, [2]) if is_flat else y


def _as_image(op: NodeBuilder, x: Value) -> Value:
    """Return an image or a weight as rank 4."""
    if x.rank != 3 or x.array is None:
        return op.nchw(op.unsqueeze(x, [2]) if x.rank == 3 else x)
    quant = x.quantized.param if x.quantized else None
    return op.constant(np.expand_dims(x.array, 2), format=Format.NCHW, quant=quant)


def _kernel_size(x: Value, weight: Value, kernel_shape: Ints) -> Ints:
    """Return the size of the kernel, in one dimension or two. Raise Unsupported for other kernels."""
    kernel = weight.shape[2:]
    if x.rank != weight.rank or x.rank not in (3, 4):
        refuse(f"x is {x} and its weight {weight}; NNRt has convolutions of rank 3 and 4 (images of 1 or 2 dimensions)")
    if -1 in weight.shape:
        refuse(f"the shape of its weight {weight} is known only in a run")
    if kernel_shape and kernel_shape != kernel:
        refuse(f"its kernel_shape is {list(kernel_shape)} but its weight {weight}")
    return kernel


def _window_parameters(x: Value, kernel: Ints, window: Window) -> dict[str, Any]:
    """Return the parameters of a sliding window: stride, dilation, and the padding as a list or a mode."""
    spatial = len(kernel)
    if spatial not in (1, 2):
        refuse(f"its window has {spatial} dimensions; NNRt has those of 1 and 2")
    strides, dilations = window.strides or (1,) * spatial, window.dilations or (1,) * spatial
    pads, auto_pad = window.pads, window.auto_pad
    if auto_pad == "VALID":
        pads = ()
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        if auto_pad == "SAME_UPPER" and spatial == 2:
            return {"stride": strides, "dilation": dilations, "pad_mode": PadMode.SAME}
        pads = _same_pads(x, kernel, strides, dilations, is_upper=auto_pad == "SAME_UPPER")
    elif auto_pad != "NOTSET":
        refuse(f"its auto_pad is {auto_pad!r}")
    pads = pads or (0,) * (2 * spatial)
    if any(len(values) != count for values, count in ((strides, spatial), (dilations, spatial), (pads, 2 * spatial))):
        refuse(f"its strides {list(strides)}, dilations {list(dilations)} and pads {list(pads)} fit no kernel {kernel}")
    if min(pads) < 0:
        refuse(f"its pads are {list(pads)}; NNRt pads with 0 or more")
    if spatial == 1:
        return {"stride": (1, *strides), "dilation": (1, *dilations), "pad_list": (0, 0, *pads)}
    top, left, bottom, right = pads
    return {"stride": strides, "dilation": dilations, "pad_list": (top, bottom, left, right)}


def _same_pads(x: Value, kernel: Ints, strides: Ints, dilations: Ints, *, is_upper: bool) -> Ints:
    """Return the padding for which the output has ceil(size / stride) positions."""
    sizes = x.shape[2:]
    if -1 in sizes:
        refuse(f"the height and width of {x} decide its padding; fix them")
    totals = [
        max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    return _halve(totals, is_upper=is_upper)


def _halve(totals: Sequence[int], *, is_upper: bool) -> Ints:
    """Split paddings into begin and end. An odd one goes to the end if `is_upper`, else to the begin."""
    front = [total // 2 if is_upper else total - total // 2 for total in totals]
    return (*front, *(total - half for total, half in zip(totals, front, strict=True)))
