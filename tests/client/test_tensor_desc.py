"""TensorDesc and QuantParam against the rules of NNRt's tensor description and quantization functions."""

from typing import Any

import pytest

from nnrt_client.enums import DataType, Format
from nnrt_client.model.model import Model, parts_of
from nnrt_client.model.operations.record import TensorRecord
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi import enums as hdi
from nnrt_hdi.errors import DynamicShape, InvalidParameter
from nnrt_hdi.tensor import QuantParam as ScaleAndZero
from nnrt_hdi.tensor import TensorSpec


def test_a_fresh_desc() -> None:
    desc = TensorDesc()
    assert (desc.name, desc.data_type, desc.format, desc.shape) == ("", DataType.UNKNOWN, Format.NONE, None)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("name", "image"),
        ("name", ""),
        *(("data_type", data_type) for data_type in DataType),
        *(("format", layout) for layout in Format),
        ("shape", (1,)),
        ("shape", (0, -1, -7)),
        ("shape", tuple(range(1, 11))),
    ],
)
def test_what_is_set_is_kept(attribute: str, value: Any) -> None:
    desc = TensorDesc(DataType.INT8, (2, 3), Format.NHWC, "old")
    setattr(desc, attribute, value)
    assert getattr(desc, attribute) == value


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("name", None, "give a text"),
        ("data_type", 13, r"is 13; use 0 \(UNKNOWN\) to 12"),
        ("data_type", -1, "is -1"),
        ("format", 4, r"is 4; use 0 \(NONE\) to 3"),
        ("format", -1, "is -1"),
        ("shape", None, "give a sequence of integers"),
        ("shape", (), "has 0 dimensions; give 1 to 10"),
        ("shape", (1,) * 11, "has 11 dimensions; give 1 to 10"),
        ("shape", (1.5,), "give a sequence of integers"),
        ("shape", (2**31,), "dimension 0 is 2147483648"),
    ],
)
def test_what_is_refused_changes_nothing(attribute: str, value: Any, message: str) -> None:
    desc = TensorDesc(DataType.INT8, (2, 3), Format.NHWC, "old")
    with pytest.raises(InvalidParameter, match=message):
        setattr(desc, attribute, value)
    assert desc == TensorDesc(DataType.INT8, (2, 3), Format.NHWC, "old")


def test_numbers_become_members() -> None:
    desc = TensorDesc()
    desc.data_type = 11  # type: ignore[assignment]
    desc.format = 2  # type: ignore[assignment]
    assert desc.data_type is DataType.FLOAT32
    assert desc.format is Format.NHWC


ITEM_SIZES = {
    **dict.fromkeys((DataType.BOOL, DataType.INT8, DataType.UINT8), 1),
    **dict.fromkeys((DataType.INT16, DataType.UINT16, DataType.FLOAT16), 2),
    **dict.fromkeys((DataType.INT32, DataType.UINT32, DataType.FLOAT32), 4),
    **dict.fromkeys((DataType.INT64, DataType.UINT64, DataType.FLOAT64), 8),
}


@pytest.mark.parametrize("data_type", ITEM_SIZES, ids=lambda data_type: data_type.name)
def test_sizes(data_type: DataType) -> None:
    desc = TensorDesc(data_type, (2, 3, 5))
    assert desc.element_count() == 30
    assert desc.byte_size() == 30 * ITEM_SIZES[data_type]


HUGE = (2**31 - 1, 2**31 - 1, 8)


@pytest.mark.parametrize(
    ("desc", "count_error", "size_error"),
    [
        (TensorDesc(DataType.FLOAT32), InvalidParameter, InvalidParameter),
        (TensorDesc(DataType.FLOAT32, (2, -1)), DynamicShape, DynamicShape),
        (TensorDesc(DataType.FLOAT32, (2, 0)), DynamicShape, DynamicShape),
        (TensorDesc(DataType.FLOAT32, (-7,)), DynamicShape, DynamicShape),
        (TensorDesc(DataType.UNKNOWN, (2, -1)), DynamicShape, DynamicShape),
        (TensorDesc(DataType.UNKNOWN, (2, 3)), None, InvalidParameter),
        (TensorDesc(DataType.INT8, HUGE), InvalidParameter, InvalidParameter),
        (TensorDesc(DataType.INT32, HUGE[:2]), None, None),
        (TensorDesc(DataType.INT64, HUGE[:2]), None, InvalidParameter),
    ],
    ids=repr,
)
def test_sizes_that_are_not_known(
    desc: TensorDesc, count_error: type[Exception] | None, size_error: type[Exception] | None
) -> None:
    for method, error in ((desc.element_count, count_error), (desc.byte_size, size_error)):
        if error is None:
            assert method() > 0
        else:
            with pytest.raises(error):
                method()


def test_a_copy_is_its_own() -> None:
    desc = TensorDesc(DataType.INT8, (2,), Format.ND, "a")
    other = desc.copy()
    assert other == desc
    other.shape = (3,)
    assert desc.shape == (2,)
    assert other != desc


@pytest.mark.parametrize(
    ("api", "device"),
    [
        (Format.NONE, hdi.Format.NONE),
        (Format.NCHW, hdi.Format.NCHW),
        (Format.NHWC, hdi.Format.NHWC),
        (Format.ND, hdi.Format.NONE),
    ],
)
def test_format_of_the_device(api: Format, device: hdi.Format) -> None:
    spec = TensorRecord(TensorDesc(DataType.FLOAT16, (1, 2), api, "x")).spec
    assert spec == TensorSpec(hdi.DataType.FLOAT16, (1, 2), device, name="x")


@pytest.mark.parametrize("data_type", DataType, ids=lambda data_type: data_type.name)
@pytest.mark.parametrize("shape", [None, (1, -1, 3)])
def test_there_and_back(data_type: DataType, shape: tuple[int, ...] | None) -> None:
    desc = TensorDesc(data_type, shape, Format.NCHW, "x")
    assert TensorDesc._from_spec(TensorRecord(desc).spec) == desc
    assert TensorRecord(desc).spec.data_type.name == data_type.name


def test_a_dimension_no_tensor_has() -> None:
    with pytest.raises(InvalidParameter, match="dimension 1 is -7"):
        _ = TensorRecord(TensorDesc(DataType.INT8, (1, -7))).spec


def specs(quant: QuantParam) -> tuple[ScaleAndZero, ...]:
    """The parameters as the device gets them."""
    model = Model()
    model.input((1,), quant=quant)
    return parts_of(model).tensors[0].quant


def test_fresh_quant_param_means_not_quantized() -> None:
    quant = QuantParam()
    assert (quant.scales, quant.zero_points, quant.num_bits) == ((), (), ())
    assert specs(quant) == ()


def test_quant_param_of_channels() -> None:
    quant = QuantParam([0.5, 0.25], [3, -4])
    assert specs(quant) == (ScaleAndZero(0.5, 3, 8), ScaleAndZero(0.25, -4, 8))
    assert quant.copy() == quant


@pytest.mark.parametrize("attribute", ["scales", "zero_points", "num_bits"])
@pytest.mark.parametrize("value", [None, (), "ab"])
def test_no_array(attribute: str, value: Any) -> None:
    quant = QuantParam([0.5], [3])
    with pytest.raises(InvalidParameter, match=attribute):
        setattr(quant, attribute, value)
    assert quant == QuantParam([0.5], [3])


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("zero_points", [2**31]), ("zero_points", [1.5]), ("num_bits", [-1]), ("num_bits", [2**32])],
)
def test_values_that_do_not_fit(attribute: str, value: Any) -> None:
    with pytest.raises(InvalidParameter, match=attribute):
        setattr(QuantParam(), attribute, value)


def quant_param(**arrays: Any) -> QuantParam:
    """Arrays set one by one, as the C functions do."""
    quant = QuantParam()
    for name, values in arrays.items():
        setattr(quant, name, values)
    return quant


@pytest.mark.parametrize(
    ("quant", "message"),
    [
        (quant_param(scales=[0.5]), "scales has 1, zero_points has 0, num_bits has 0 values"),
        (quant_param(scales=[0.5], zero_points=[0]), "num_bits has 0"),
        (quant_param(scales=[0.5, 1], zero_points=[0], num_bits=[8]), "scales has 2"),
        (quant_param(scales=[0.5, 1], zero_points=[0, 0], num_bits=[8, 4]), r"num_bits\[1\] is 4; use 8"),
    ],
)
def test_arrays_that_do_not_belong_together(quant: QuantParam, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        specs(quant)
