"""Functions of tensor descriptions (descs), tensors, and quantization parameters."""

from collections.abc import Sequence

from nnrt_client.c_interface.adapter import (
    returns_code,
    returns_pointer,
    returns_value,
)
from nnrt_client.c_interface.constants import OH_NN_DataType, OH_NN_Format
from nnrt_client.c_interface.functions.devices import device_of
from nnrt_client.c_interface.handles import NN_QuantParam, NN_Tensor, NN_TensorDesc
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter

# ---- TensorDesc


@returns_pointer("NN_TensorDesc", "TensorDesc")
def OH_NNTensorDesc_Create() -> NN_TensorDesc:
    """Create a desc without name, data type, format and shape."""
    return NN_TensorDesc(TensorDesc())


@returns_code("")
def OH_NNTensorDesc_Destroy(tensor_desc: NN_TensorDesc | None) -> None:
    """Destroy a desc. INVALID_PARAMETER for a desc that belongs to a tensor."""
    if isinstance(tensor_desc, NN_TensorDesc) and tensor_desc.is_borrowed:
        raise InvalidParameter("the desc belongs to its tensor; destroy that")
    NN_TensorDesc.take(tensor_desc)


@returns_code("TensorDesc.name")
def OH_NNTensorDesc_SetName(tensor_desc: NN_TensorDesc | None, name: str | None) -> None:
    """Set the name, which may be empty."""
    NN_TensorDesc.require(tensor_desc).name = name  # type: ignore[assignment]  # refuses None


@returns_value("name", None, "TensorDesc.name")
def OH_NNTensorDesc_GetName(tensor_desc: NN_TensorDesc | None) -> str:
    """Return the name, empty if it was never set."""
    return NN_TensorDesc.require(tensor_desc).name


@returns_code("TensorDesc.data_type")
def OH_NNTensorDesc_SetDataType(tensor_desc: NN_TensorDesc | None, data_type: int) -> None:
    """Set the data type, which may be OH_NN_UNKNOWN."""
    NN_TensorDesc.require(tensor_desc).data_type = data_type  # type: ignore[assignment]  # checks numbers


@returns_value("data type", None, "TensorDesc.data_type")
def OH_NNTensorDesc_GetDataType(tensor_desc: NN_TensorDesc | None) -> OH_NN_DataType:
    """Return the data type, OH_NN_UNKNOWN if it was never set."""
    return NN_TensorDesc.require(tensor_desc).data_type


@returns_code("TensorDesc.shape")
def OH_NNTensorDesc_SetShape(tensor_desc: NN_TensorDesc | None, shape: Sequence[int] | None) -> None:
    """Set 1 to 10 dimensions. Their values are not checked; -1 is a dimension that is known only in a run."""
    NN_TensorDesc.require(tensor_desc).shape = shape  # type: ignore[assignment]  # refuses None


@returns_value("shape", None, "TensorDesc.shape")
def OH_NNTensorDesc_GetShape(tensor_desc: NN_TensorDesc | None) -> Sequence[int]:
    """Return the shape, empty if it was never set."""
    return NN_TensorDesc.require(tensor_desc).shape or ()


@returns_code("TensorDesc.format")
def OH_NNTensorDesc_SetFormat(tensor_desc: NN_TensorDesc | None, format: int) -> None:
    """Set the order of the dimensions."""
    NN_TensorDesc.require(tensor_desc).format = format  # type: ignore[assignment]  # checks numbers


@returns_value("format", None, "TensorDesc.format")
def OH_NNTensorDesc_GetFormat(tensor_desc: NN_TensorDesc | None) -> OH_NN_Format:
    """Return the order of the dimensions, OH_NN_FORMAT_NONE if it was never set."""
    return NN_TensorDesc.require(tensor_desc).format


@returns_value("count", 0, "TensorDesc.element_count")
def OH_NNTensorDesc_GetElementCount(tensor_desc: NN_TensorDesc | None) -> int:
    """Return the number of elements; DYNAMIC_SHAPE and 0 if a dimension is unknown."""
    return NN_TensorDesc.require(tensor_desc).element_count()


@returns_value("size", 0, "TensorDesc.byte_size")
def OH_NNTensorDesc_GetByteSize(tensor_desc: NN_TensorDesc | None) -> int:
    """Return the size in bytes; DYNAMIC_SHAPE and 0 if a dimension is unknown."""
    return NN_TensorDesc.require(tensor_desc).byte_size()


# ---- Tensor


@returns_pointer("NN_Tensor", "Tensor")
def OH_NNTensor_Create(device_id: int, tensor_desc: NN_TensorDesc | None) -> NN_Tensor:
    """Create a tensor of the desc's size, which must be fixed."""
    desc = NN_TensorDesc.require(tensor_desc)
    return NN_Tensor(Tensor(device_of(device_id), desc))


@returns_pointer("NN_Tensor", "Tensor.with_size")
def OH_NNTensor_CreateWithSize(device_id: int, tensor_desc: NN_TensorDesc | None, size: int) -> NN_Tensor:
    """Create a tensor with `size` bytes, for example for an output whose shape is known only in a run."""
    desc = NN_TensorDesc.require(tensor_desc)
    return NN_Tensor(Tensor.with_size(device_of(device_id), desc, size))


@returns_pointer("NN_Tensor", "Tensor.from_fd")
def OH_NNTensor_CreateWithFd(
    device_id: int, tensor_desc: NN_TensorDesc | None, fd: int, size: int, offset: int
) -> NN_Tensor:
    """Create a tensor over the bytes [offset, size) of shared memory. The caller still owns `fd`."""
    desc = NN_TensorDesc.require(tensor_desc)
    return NN_Tensor(Tensor.from_fd(device_of(device_id), desc, fd, size, offset))


@returns_code("Tensor.close")
def OH_NNTensor_Destroy(tensor: NN_Tensor | None) -> None:
    """Destroy a tensor and its desc. Views of its memory stay valid."""
    NN_Tensor.take(tensor).close()


@returns_pointer("buffer", "Tensor.data_buffer, Tensor.numpy")
def OH_NNTensor_GetDataBuffer(tensor: NN_Tensor | None) -> memoryview:
    """Return a writable view of the tensor's elements, the bytes [offset, size) of its memory."""
    return NN_Tensor.require(tensor).data_buffer


@returns_value("fd", None, "Tensor.fd")
def OH_NNTensor_GetFd(tensor: NN_Tensor | None) -> int:
    """Return the file descriptor of the memory, which the tensor owns."""
    return NN_Tensor.require(tensor).fd


@returns_value("size", 0, "Tensor.size_bytes")
def OH_NNTensor_GetSize(tensor: NN_Tensor | None) -> int:
    """Return the size of the whole memory in bytes, with those before the offset."""
    return NN_Tensor.require(tensor).size_bytes


@returns_value("offset", 0, "Tensor.offset")
def OH_NNTensor_GetOffset(tensor: NN_Tensor | None) -> int:
    """Return the offset of the tensor in its memory in bytes: 0, unless it was created with a file descriptor."""
    return NN_Tensor.require(tensor).offset


@returns_pointer("NN_TensorDesc", "Tensor.desc")
def OH_NNTensor_GetTensorDesc(tensor: NN_Tensor | None) -> NN_TensorDesc:
    """Return the tensor's own desc. Runs read an input's shape from it, and write an output's shape to it."""
    return NN_Tensor.own_desc(tensor)


# ---- QuantParam


@returns_pointer("NN_QuantParam", "QuantParam")
def OH_NNQuantParam_Create() -> NN_QuantParam:
    """Create quantization parameters of three empty arrays."""
    return NN_QuantParam(QuantParam())


@returns_code("QuantParam.scales")
def OH_NNQuantParam_SetScales(quant_params: NN_QuantParam | None, scales: Sequence[float] | None) -> None:
    """Set the scales: one for the tensor, or one per channel."""
    NN_QuantParam.require(quant_params).scales = scales  # type: ignore[assignment]  # refuses None


@returns_code("QuantParam.zero_points")
def OH_NNQuantParam_SetZeroPoints(quant_params: NN_QuantParam | None, zero_points: Sequence[int] | None) -> None:
    """Set the zero points, as many as scales."""
    NN_QuantParam.require(quant_params).zero_points = zero_points  # type: ignore[assignment]  # refuses None


@returns_code("QuantParam.num_bits")
def OH_NNQuantParam_SetNumBits(quant_params: NN_QuantParam | None, num_bits: Sequence[int] | None) -> None:
    """Set the numbers of bits, as many as scales, each 8. They are checked when they are set on a tensor."""
    NN_QuantParam.require(quant_params).num_bits = num_bits  # type: ignore[assignment]  # refuses None


@returns_code("")
def OH_NNQuantParam_Destroy(quant_params: NN_QuantParam | None) -> None:
    """Destroy quantization parameters. Tensors that have them keep a copy."""
    NN_QuantParam.take(quant_params)
