"""Random values for operators: mostly small, which are often valid, and some that never are."""

import math
from collections.abc import Sequence
from enum import IntEnum
from random import Random
from typing import Any, get_args, get_origin

import numpy as np

from nnrt_hdi.enums import DataType
from nnrt_hdi.ops.signature import DeclaredAttribute
from nnrt_hdi.tensor import NUMPY_DTYPES, Array, QuantParam


def is_int_lists(rule: DeclaredAttribute) -> bool:
    return get_origin(rule.type) is tuple and get_origin(get_args(rule.type)[0]) is tuple


def random_quantization(rng: Random, data_type: DataType) -> tuple[QuantParam, ...]:
    """Return quantization parameters: mostly valid ones for quantized types, rarely others."""
    if data_type not in (DataType.INT8, DataType.UINT8) or rng.random() < 0.3:
        return (QuantParam(1.0, 0),) if rng.random() < 0.01 else ()
    if rng.random() < 0.1:
        return tuple(QuantParam(rng.choice([0.0, -1.0, math.nan]), 300, rng.randint(-1, 9)) for _ in range(2))
    return tuple(QuantParam(rng.choice([0.5, 0.0, 1e-30, 1e30]), 3) for _ in range(rng.choice([1, 1, 1, 2])))


def random_attribute(rng: Random, rule: DeclaredAttribute) -> Any:
    # The type of an optional attribute without None, or of a list's elements.
    kind = get_args(rule.type)[0] if get_args(rule.type) else rule.type
    if is_int_lists(rule):
        return tuple((rng.randint(0, 2), rng.randint(0, 2)) for _ in range(rng.choice([0, 0, 2])))
    if get_origin(rule.type) is tuple:
        return tuple(random_value(rng, kind) for _ in range(rng.choice([0, 1, 2, 2, 2, 4])))
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return 99 if rng.random() < 0.02 else rng.choice(list(kind)).value
    if kind is str:
        return rng.choice(["", "DCR", "CRD", "ACROSS_CHANNELS", "neither"])
    return rng.random() < 0.5 if kind is bool else random_value(rng, kind)


def random_value(rng: Random, kind: type) -> float | int | str:
    if kind is str:
        return rng.choice(["", "DCR", "CRD", "ACROSS_CHANNELS", "none that exists"])
    if kind is int:
        return rng.choice([2**62, -(2**63)]) if rng.random() < 0.02 else rng.choice([-2, -1, 0, 1, 1, 1, 2, 2, 3])
    return rng.choice([0.0, 0.5, -1.0, 1.0, 1e-5, 1e30, float("inf"), float("nan")])


def random_array(rng: Random, shape: Sequence[int], data_type: DataType) -> Array:
    """Return an array of small numbers, which may also be axes, shapes and paddings."""
    count = int(np.prod(shape))
    dtype = NUMPY_DTYPES[data_type]
    lowest = 0 if dtype.kind in "ub" else -2
    return np.array([rng.randint(lowest, 4) for _ in range(count)]).astype(dtype).reshape(shape)
