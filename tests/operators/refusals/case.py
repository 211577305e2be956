"""Short names for the parts of a refused node."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.tensor import QuantParam, data_type_of
from operators.single_node import Pair, spec

# Node type, operands, attributes, and a pattern that the error message must match.
Case = tuple[NodeType, Sequence[Pair], Mapping[str, Any], str]


def t(*shape: int, data_type: DataType = DataType.FLOAT32, layout: Format = Format.NONE) -> Pair:
    return spec(shape, data_type, layout), None


def c(*values: Any, dtype: str = "i8") -> Pair:
    array = np.array(values, dtype)
    return spec(array.shape, data_type_of(array.dtype)), array


def quantized(*shape: int, scale: float = 0.5) -> Pair:
    return replace(spec(shape, DataType.INT8), quant=(QuantParam(scale, 0),)), None
