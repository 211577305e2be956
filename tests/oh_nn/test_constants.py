"""C's names of the enums' values."""

from enum import IntEnum

import pytest

from nnrt_client import enums, oh_nn

# What C puts between OH_NN_ and the name of a member.
PREFIXES = {
    "ReturnCode": "",
    "DataType": "",
    "Format": "FORMAT_",
    "FuseType": "FUSED_",
    "DeviceType": "",
    "PerformanceMode": "PERFORMANCE_",
    "Priority": "PRIORITY_",
    "OperationType": "OPS_",
    "TensorType": "",
}
# C says OTHERS.
RENAMED = {"OTHER": "OTHERS"}


@pytest.mark.parametrize("name", PREFIXES)
def test_every_member_has_its_name(name: str) -> None:
    enum: type[IntEnum] = getattr(enums, name)
    assert getattr(oh_nn, f"OH_NN_{name}") is enum
    for member in enum:
        assert getattr(oh_nn, f"OH_NN_{PREFIXES[name]}{RENAMED.get(member.name, member.name)}") is member


def test_there_are_no_others() -> None:
    constants = [name for name in vars(oh_nn)["__all__"] if isinstance(getattr(oh_nn, name), IntEnum)]
    assert len(constants) == sum(len(getattr(enums, name)) for name in PREFIXES)


def test_numbers_of_the_header() -> None:
    """A few, as the documents have them."""
    assert [
        oh_nn.OH_NN_SUCCESS,
        oh_nn.OH_NN_UNAVALIDABLE_DEVICE,
        oh_nn.OH_NN_UNAVAILABLE_DEVICE,
        oh_nn.OH_NN_FLOAT32,
        oh_nn.OH_NN_FORMAT_NHWC,
        oh_nn.OH_NN_FUSED_RELU6,
        oh_nn.OH_NN_ACCELERATOR,
        oh_nn.OH_NN_PERFORMANCE_EXTREME,
        oh_nn.OH_NN_PRIORITY_HIGH,
        oh_nn.OH_NN_OPS_GATHER_ND,
        oh_nn.OH_NN_REDUCE_L2_COEFF,
    ] == [0, 7, 14, 11, 2, 2, 3, 4, 3, 108, 162]
