"""Conversion of PNG images to arrays for inputs."""

from pathlib import Path

import click
import numpy as np

from nnrt_client.enums import Format
from nnrt_hdi.errors import InvalidFile, InvalidParameter
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, TensorSpec, format_shape

SUFFIX = ".png"
EXTRA = "nnrt[images]"

# Pillow's modes by number of channels.
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def image_array(path: Path, spec: TensorSpec) -> Array:
    """Load a PNG as the array of an input, without scaling or cropping.

    1, 3 or 4 channels of the input mean grey, RGB or RGBA. Elements are UINT8 0..255, or floats 0..1.

    Raises:
        UsageError: Pillow is not installed.
        InvalidParameter: the input takes no image of this size or kind.
        InvalidFile: the file is not a PNG.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise click.UsageError(f"{path}: images need Pillow; install {EXTRA}, or give an .npy file") from error
    place = f"input {spec.name!r}"
    axis = channel_axis(spec, place)
    channels = 1 if axis is None else spec.shape[axis]
    with path.open("rb") as file:
        try:
            with Image.open(file, formats=["PNG"]) as image:
                width, height = image.size  # Known before the image is decoded.
                shape = _shape(spec, axis, height, width, place)
                pixels: Array = np.asarray(image.convert(_MODES[channels]))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise InvalidFile(f"it is no PNG, or damaged: {error}", place=f"{path}") from error
    return as_input(pixels.reshape(height, width, channels), spec, axis).reshape(shape)


def channel_axis(spec: TensorSpec, place: str) -> int | None:
    """Return the axis of an input that holds an image's channels, or None for [rows, columns].

    Raises InvalidParameter for an input that takes no image.
    """
    if spec.numpy_dtype.kind == "f" or spec.numpy_dtype == np.uint8:
        if spec.rank == 2:
            return None
        last, first = spec.rank - 1, spec.rank - 3
        # ONNX files state no layout: an import assumes NCHW even where the channels come last.
        candidates = [last] if spec.format.name == Format.NHWC.name else [first, last]
        for axis in candidates if spec.rank in (3, 4) else ():
            if spec.shape[axis] in _MODES:
                return axis
    raise InvalidParameter(
        f"it is {spec}; an image needs FLOAT or UINT8, and height and width with 1, 3 or 4 channels", place=place
    )


def as_input(pixels: Array, spec: TensorSpec, axis: int | None) -> Array:
    """Convert pixels of shape [rows, columns, channels] to the layout and data type of an input."""
    planes = pixels.transpose(2, 0, 1) if axis == spec.rank - 3 and spec.rank > 2 else pixels
    if spec.numpy_dtype == np.uint8:
        return planes
    return (planes.astype(np.float64) / 255).astype(spec.numpy_dtype)


def _shape(spec: TensorSpec, axis: int | None, height: int, width: int, place: str) -> tuple[int, ...]:
    """Return the shape of the image as this input. Raises InvalidParameter where it does not fit."""
    if axis is None:
        shape: tuple[int, ...] = (height, width)
    else:
        channels = spec.shape[axis]
        shape = (height, width, channels) if axis == spec.rank - 1 else (channels, height, width)
    shape = (1,) * (spec.rank - len(shape)) + shape
    if any(known not in (UNKNOWN_DIM, dim) for known, dim in zip(spec.shape, shape, strict=True)):
        raise InvalidParameter(
            f"the image has {height} rows of {width}, so that it is {format_shape(shape)}; the model takes {spec}",
            place=place,
        )
    return shape
