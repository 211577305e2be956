"""Conversion of networks to other number formats with ONNX Runtime's tools."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16

from families.network import DYNAMIC, FP16, QDQ, QOPERATOR

Feeds = Mapping[str, NDArray[np.generic]]


class Examples(CalibrationDataReader):
    """Calibration data of a network."""

    def __init__(self, feeds: Sequence[Feeds]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Feeds | None:
        return next(self.feeds, None)


def convert(path: Path, into: Path, name: str, feeds: Sequence[Feeds]) -> None:
    """Convert the ONNX file `path` to the number format `name`, and write it to `into`; `feeds` calibrate it."""
    if name == FP16:
        onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=True), into)
        return
    prepared = into.with_suffix(".prepared.onnx")
    quant_pre_process(path, prepared, skip_symbolic_shape=True)
    if name == DYNAMIC:
        quantize_dynamic(prepared, into)
    else:
        quantize_static(
            prepared,
            into,
            Examples(feeds),
            quant_format={QDQ: QuantFormat.QDQ, QOPERATOR: QuantFormat.QOperator}[name],
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=name == QDQ,
        )
    prepared.unlink()
