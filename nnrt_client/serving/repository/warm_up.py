"""Warm-up: runs that a device makes before requests come to it."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.serving.datatypes import DTYPES, Array, object_array
from nnrt_client.serving.repository.model_settings import WarmInput
from nnrt_client.serving.repository.paths import read_bounded
from nnrt_client.serving.tensor_info import TensorInfo, described
from nnrt_hdi.errors import InvalidFile, InvalidParameter
from nnrt_hdi.tensor import Shape, format_shape

_MOST_BYTES = 1 << 30


def warm_up(session: ModelSession, runs: Sequence[Mapping[str, WarmInput]]) -> None:
    """Make runs of a model.

    Args:
        session: The model on a device.
        runs: Inputs of each run by name; one that isn't named is zeros.

    Raises:
        InvalidParameter: An input is unknown, or doesn't fit the model.
        InvalidFile: A file has no array.
        NnrtError: A run fails.
    """
    inputs = described(session, session.inputs)
    for index, run in enumerate(runs):
        place = f"warm_up {index}"
        if unknown := run.keys() - {one.name for one in inputs}:
            raise InvalidParameter(
                f"there are no inputs {sorted(unknown)}; there are {[one.name for one in inputs]}", place=place
            )
        session.run([_array(one, run.get(one.name, WarmInput()), f"{place}: input {one.name!r}") for one in inputs])


def _array(info: TensorInfo, wanted: WarmInput, place: str) -> Array:
    shape = wanted.shape or tuple(max(dim, 1) for dim in info.shape)
    if isinstance(wanted.content, Path):
        return _read(wanted.content, wanted.shape, place)
    dtype: np.dtype[Any] = np.dtype(DTYPES.get(info.datatype, object))
    count = math.prod(shape)
    if count * dtype.itemsize > _MOST_BYTES:
        raise InvalidParameter(f"{format_shape(shape)} has more than {_MOST_BYTES} bytes", place=place)
    if dtype.kind == "O":
        return object_array([b""] * count).reshape(shape)
    if wanted.content == "zeros":
        return np.zeros(shape, dtype)
    # The same numbers each time, so that a failure comes again. Integers stay small: they may be indices.
    random = np.random.default_rng(0)
    made: Any = random.random(shape) if dtype.kind == "f" else random.integers(0, 2, shape)
    return np.asarray(made).astype(dtype)


def _read(path: Path, shape: Shape | None, place: str) -> Array:
    try:
        array: Array = np.load(io.BytesIO(read_bounded(path, _MOST_BYTES)), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidFile(f"{path.name!r} has no array of numbers: {error}", place=place) from error
    if shape is not None and array.shape != shape:
        raise InvalidParameter(
            f"{path.name!r} has the shape {format_shape(array.shape)}; {format_shape(shape)} is wanted", place=place
        )
    return array
