"""Invalid outputs of an identity, by name, which the backend `faulty` returns."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from nnrt_hdi.device_buffers import DeviceBuffer, DeviceRegion
from nnrt_hdi.enums import DataType
from nnrt_hdi.tensor import Array, TensorSpec


class Nonsense(NamedTuple):
    """Function that makes an invalid output from an input, and the words of the error about it."""

    make: Callable[[Array], Any]
    named: str
    is_of_one_output: bool = True


class _Bogus(DeviceBuffer):
    """Memory that no run was given."""

    size_bytes = 1 << 20

    def read(self, offset: int, target: memoryview) -> None:
        target[:] = bytes(target.nbytes)

    def write(self, offset: int, data: memoryview) -> None:
        raise AssertionError("nobody writes there")

    def close(self) -> None:
        raise AssertionError("nobody closes it")


def _bogus_region(x: Array) -> list[Any]:
    return [DeviceRegion(_Bogus(), 0, TensorSpec(DataType.FLOAT32, x.shape))]


NONSENSE: Mapping[str, Nonsense] = {
    "nothing": Nonsense(lambda x: None, "None", False),
    "text": Nonsense(lambda x: "x", "an object of type str", False),
    "too few": Nonsense(lambda x: [], "a list of 0", False),
    "too many": Nonsense(lambda x: [x, x], "a list of 2", False),
    "no array": Nonsense(lambda x: [None], "None"),
    "numbers": Nonsense(lambda x: [x.tolist()], "a list of 4"),
    "another type": Nonsense(lambda x: [x.astype(np.float64)], "float64[4]"),
    "another rank": Nonsense(lambda x: [x[None]], "float32[1, 4]"),
    "another shape": Nonsense(lambda x: [x[:-1]], "float32[3]"),
    "another region": Nonsense(_bogus_region, "FLOAT32[4] in memory that the run was not given for it"),
}
