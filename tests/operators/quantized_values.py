"""Random elements of quantized tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import DataType


def elements(random: np.random.Generator, shape: Sequence[int], data_type: DataType) -> NDArray[Any]:
    limits = np.iinfo(data_type.name.lower())
    return random.integers(limits.min, limits.max + 1, shape).astype(limits.dtype)
