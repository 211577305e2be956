"""Parameters of operations: the tensors that carry them, and how their elements become attributes of a node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeVar

from nnrt_client.enums import FuseType, PadMode, TensorType
from nnrt_client.model.operations.values import convert_exactly
from nnrt_hdi.enums import ActivationType, DataType
from nnrt_hdi.enums import PadMode as HdiPadMode
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import AttrValue
from nnrt_hdi.tensor import Array, TensorSpec

Convert = Callable[[list[Any]], AttrValue]

EnumT = TypeVar("EnumT", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of an operation: the attribute of HDI's struct that it fills, and the tensors that may carry it.

    `Model.apply` makes tensors with the first of `tensor_types` and `data_types`. `counts` are the allowed numbers of
    elements; if empty, any number is. With `or_like_input` it may also have the data type of the first input.
    """

    attr: str
    tensor_types: tuple[TensorType, ...]
    data_types: tuple[DataType, ...]
    counts: tuple[int, ...]
    convert: Convert
    enum: type[IntEnum] | None = None
    keyword: str = ""
    required: bool = False
    or_like_input: bool = False

    @property
    def place(self) -> str:
        """Name of the parameter in messages, such as "parameter stride (CONV2D_STRIDES)"."""
        return f"parameter {self.keyword} ({self.tensor_types[0].name})"

    @property
    def expected_count(self) -> str:
        """Number of values that the parameter takes, in words."""
        return " or ".join(map(str, self.counts)) or "1 or more"

    def read(self, spec: TensorSpec, data: Array | None, first_input: TensorSpec) -> AttrValue:
        """Return the attribute that a parameter tensor carries; raise InvalidParameter (the caller adds `place`)."""
        accepted = (*self.data_types, *((first_input.data_type,) if self.or_like_input else ()))
        if spec.data_type not in accepted:
            names = " or ".join(data_type.name for data_type in dict.fromkeys(accepted))
            raise InvalidParameter(f"it is {spec.data_type.name}; give {names}")
        if spec.is_dynamic or (self.counts and spec.element_count not in self.counts):
            count = "an unknown number of" if spec.is_dynamic else spec.element_count
            raise InvalidParameter(f"it has {count} values; give {self.expected_count}")
        if data is None:
            raise InvalidParameter("it has no data; set it before the operation is added")
        return self.convert(data.reshape(-1).tolist())

    def encode(self, value: object) -> Array:
        """Return a Python value as elements of a tensor; raise InvalidParameter (the caller adds `place`)."""
        if isinstance(value, IntEnum) and self.enum and not isinstance(value, self.enum):
            given, wanted = (f"{kind.__module__}.{kind.__qualname__}" for kind in (type(value), self.enum))
            raise InvalidParameter(f"it is {value.name} of {given}; use {wanted}")
        array = convert_exactly(value, self.data_types[0])
        if self.counts and array.size not in self.counts:
            raise InvalidParameter(f"it has {array.size} values; give {self.expected_count}")
        return array


def integer(attr: str, tensor_type: TensorType, *also: DataType, required: bool = False) -> Parameter:
    """Declare a parameter that is one integer, of type INT64 or of a type in `also`."""
    data_types = (DataType.INT64, *also)
    return _parameter(attr, tensor_type, data_types, (1,), lambda values: int(values[0]), required=required)


def ints(attr: str, tensor_type: TensorType, *counts: int) -> Parameter:
    """Declare a parameter that is a list of INT64, whose length is one of `counts`, or any if there are none."""
    return _parameter(attr, tensor_type, (DataType.INT64,), counts, tuple)


def number(attr: str, tensor_type: TensorType, *, or_like_input: bool = False) -> Parameter:
    """Declare a parameter that is one FLOAT32."""
    return _parameter(
        attr,
        tensor_type,
        (DataType.FLOAT32,),
        (1,),
        lambda values: float(values[0]),
        or_like_input=or_like_input,
    )


def numbers(attr: str, tensor_type: TensorType, *counts: int) -> Parameter:
    """Declare a parameter that is a list of FLOAT32, whose length is one of `counts`, or any if there are none."""
    return _parameter(attr, tensor_type, (DataType.FLOAT32,), counts, tuple)


def boolean(attr: str, tensor_type: TensorType) -> Parameter:
    """Declare a parameter that is one BOOL."""
    return _parameter(attr, tensor_type, (DataType.BOOL,), (1,), lambda values: bool(values[0]))


def choice(
    attr: str,
    tensor_type: TensorType,
    enum: type[EnumT],
    *data_types: DataType,
    table: Mapping[int, AttrValue] | None = None,
) -> Parameter:
    """Declare a parameter that is one member of an enum, in one of these data types.

    `table` maps each member's number to the value that the device gets; without a table, it gets the member itself.
    """
    meaning: Mapping[int, AttrValue] = table or {member.value: member for member in enum}
    known = ", ".join(f"{member.value} ({member.name})" for member in enum)

    def convert(values: list[Any]) -> AttrValue:
        try:
            return meaning[values[0]]
        except KeyError as error:
            raise InvalidParameter(f"it is {values[0]}; use one of {known}") from error

    return replace(_parameter(attr, tensor_type, data_types, (1,), convert), enum=enum)


def activation(tensor_type: TensorType) -> Parameter:
    """Declare the fused activation: a FuseType with the keyword `activation`."""
    table: Mapping[int, AttrValue] = {
        FuseType.NONE: ActivationType.NO_ACTIVATION,
        FuseType.RELU: ActivationType.RELU,
        FuseType.RELU6: ActivationType.RELU6,
    }
    parameter = choice("activation_type", tensor_type, FuseType, DataType.INT8, table=table)
    return replace(parameter, keyword="activation")


def padding(list_attr: str, pad: TensorType, pad_mode: TensorType) -> tuple[Parameter, Parameter]:
    """Declare a pad list [top, bottom, left, right] and a pad mode.

    NNRt distinguishes them by their number of elements only, so a tensor of either type may carry either parameter.
    """
    # 2 is not documented, but NNRt takes it, because PadMode once had the numbers of the device interface.
    table = {PadMode.SAME: HdiPadMode.SAME, PadMode.VALID: HdiPadMode.VALID, 2: HdiPadMode.VALID}
    pads = ints(list_attr, pad, 4)
    mode = choice("pad_mode", pad_mode, PadMode, DataType.INT8, table=table)
    return replace(pads, tensor_types=(pad, pad_mode)), replace(mode, tensor_types=(pad_mode, pad))


def _parameter(
    attr: str,
    tensor_type: TensorType,
    data_types: tuple[DataType, ...],
    counts: tuple[int, ...],
    convert: Convert,
    *,
    required: bool = False,
    or_like_input: bool = False,
) -> Parameter:
    # `global` is a keyword of Python.
    keyword = "global_" if attr == "global" else attr
    return Parameter(
        attr,
        (tensor_type,),
        data_types,
        counts,
        convert,
        keyword=keyword,
        required=required,
        or_like_input=or_like_input,
    )
