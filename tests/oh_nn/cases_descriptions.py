"""Cases of sections 4 to 8: devices, tensor descriptions, tensors, quantization parameters, models."""

import os
from typing import Any

import numpy as np

from nnrt_client.oh_nn import *
from oh_nn.case import case, cases
from oh_nn.world import World, X, ok, value

UNKNOWN_ID = 12345
GIB = 1 << 30
ONE_FLOAT = np.float32(1)
FOUR_FLOATS = np.zeros(4, np.float32)

# ---- 4 Device


@case("4.2-1")
def _(world: World) -> Any:
    answer = OH_NNDevice_GetAllDevicesID()
    assert answer[1] == ()
    return answer


@case("4.3-1")
def _(world: World) -> Any:
    world.connect("reference")
    return OH_NNDevice_GetName(UNKNOWN_ID)


@case("4.4-1")
def _(world: World) -> Any:
    world.connect("reference")
    return OH_NNDevice_GetType(UNKNOWN_ID)


cases("4.3-2", lambda world: OH_NNDevice_GetName(0))
cases("4.4-2", lambda world: OH_NNDevice_GetType(0))


# ---- 5 Tensor description


@case("5-1")
def _(world: World) -> Any:
    world.connect("reference")
    tensor = world.tensor()
    answer = OH_NNTensorDesc_Destroy(OH_NNTensor_GetTensorDesc(tensor))
    assert value(OH_NNTensorDesc_GetShape(OH_NNTensor_GetTensorDesc(tensor))) == (1, 4)
    return answer


def _fresh() -> Any:
    """Create a desc that no case destroys."""
    return OH_NNTensorDesc_Create()


@case("5-2")
def _(world: World) -> Any:
    answer = OH_NNTensorDesc_GetName(_fresh())
    assert answer[1] == ""
    return answer


@case("5-5")
def _(world: World) -> Any:
    answer = OH_NNTensorDesc_GetDataType(_fresh())
    assert answer[1] == OH_NN_UNKNOWN
    return answer


@case("5-9")
def _(world: World) -> Any:
    answer = OH_NNTensorDesc_GetShape(_fresh())
    assert answer[1] == ()
    return answer


@case("5-11")
def _(world: World) -> Any:
    answer = OH_NNTensorDesc_GetFormat(_fresh())
    assert answer[1] == OH_NN_FORMAT_NONE
    return answer


@case("5-8")
def _(world: World) -> Any:
    desc = _fresh()
    answer = OH_NNTensorDesc_SetShape(desc, [0, -1, -7])
    assert value(OH_NNTensorDesc_GetShape(desc)) == (0, -1, -7)
    return answer


cases(
    "5-3",
    lambda world: OH_NNTensorDesc_SetDataType(_fresh(), -1),
    lambda world: OH_NNTensorDesc_SetDataType(_fresh(), 13),
)
cases("5-4", lambda world: OH_NNTensorDesc_SetDataType(_fresh(), OH_NN_UNKNOWN))
cases("5-6", lambda world: OH_NNTensorDesc_SetShape(_fresh(), []))
cases("5-7", lambda world: OH_NNTensorDesc_SetShape(_fresh(), [1] * 11))
cases(
    "5-10",
    lambda world: OH_NNTensorDesc_SetFormat(_fresh(), -1),
    lambda world: OH_NNTensorDesc_SetFormat(_fresh(), 4),
)
cases("5-12", lambda world: OH_NNTensorDesc_GetElementCount(world.desc(None)))
cases(
    "5-13",
    lambda world: OH_NNTensorDesc_GetElementCount(world.desc([-1, 4])),
    lambda world: OH_NNTensorDesc_GetElementCount(world.desc([0, 4])),
)
cases("5-14", lambda world: OH_NNTensorDesc_GetElementCount(world.desc([1 << 22] * 3)))
cases("5-15", lambda world: OH_NNTensorDesc_GetByteSize(world.desc(None)))
cases("5-16", lambda world: OH_NNTensorDesc_GetByteSize(world.desc([4], OH_NN_UNKNOWN)))
cases(
    "5-17",
    lambda world: OH_NNTensorDesc_GetByteSize(world.desc([-1, 4])),
    lambda world: OH_NNTensorDesc_GetByteSize(world.desc([0])),
)
cases("5-18", lambda world: OH_NNTensorDesc_GetByteSize(world.desc([1 << 21, 1 << 21, 1 << 21])))

# ---- 6 Tensor

# Shape and data type of descs without which no tensor can be created.
_SIZELESS = (None, OH_NN_FLOAT32), ([1, 4], OH_NN_UNKNOWN)


def _create(world: World, shape: Any, data_type: int = OH_NN_FLOAT32, device_id: int = 0) -> Any:
    world.connect("reference")
    return OH_NNTensor_Create(device_id, world.desc(shape, data_type))


def _with_size(world: World, size: int, shape: Any = (1, 4), data_type: int = OH_NN_FLOAT32, device_id: int = 0) -> Any:
    world.connect("reference")
    return OH_NNTensor_CreateWithSize(device_id, world.desc(shape, data_type), size)


def _with_fd(world: World, size: int, offset: int = 0, shape: Any = (1, 4), device_id: int = 0) -> Any:
    """Create a tensor over another tensor's memory of 32 bytes."""
    world.connect("reference")
    fd = value(OH_NNTensor_GetFd(world.tensor([8])))
    return OH_NNTensor_CreateWithFd(device_id, world.desc(shape), fd, size, offset)


cases("6.1-1", lambda world: _create(world, [-1, 4]))
cases("6.1-2", *(lambda world, sizeless=sizeless: _create(world, *sizeless) for sizeless in _SIZELESS))
cases("6.1-3", lambda world: _create(world, [GIB // 4 + 1]))
cases("6.1-4", lambda world: _create(world, [1], device_id=UNKNOWN_ID))


cases("6.2-1", lambda world: _with_size(world, 15))
cases("6.2-2", lambda world: _with_size(world, 0), lambda world: _with_size(world, 0, [-1]))
cases("6.2-3", lambda world: _with_size(world, GIB + 1), lambda world: _with_size(world, GIB + 1, [-1]))
cases("6.2-4", lambda world: _with_size(world, 16, device_id=UNKNOWN_ID))
cases("6.2-5", *(lambda world, sizeless=sizeless: _with_size(world, 16, *sizeless) for sizeless in _SIZELESS))
cases("6.3-2", lambda world: _with_fd(world, 0))
cases("6.3-3", lambda world: _with_fd(world, 16, 17), lambda world: _with_fd(world, 16, 17, [-1]))
cases("6.3-4", lambda world: _with_fd(world, 32, 17), lambda world: _with_fd(world, 16, 16))
cases("6.3-5", lambda world: _with_fd(world, 32, 32, [-1]))
cases("6.3-6", lambda world: _with_fd(world, 32, device_id=UNKNOWN_ID))


@case("6.3-1")
def _(world: World) -> Any:
    world.connect("reference")
    return OH_NNTensor_CreateWithFd(0, world.desc(), -1, 16, 0)


@case("6.3-7")
def _(world: World) -> Any:
    world.connect("reference")
    reader, writer = os.pipe()
    answer = OH_NNTensor_CreateWithFd(0, world.desc(), reader, 16, 0)
    os.close(reader)
    os.close(writer)
    return answer


# ---- 7 Quantization parameters

cases("7-1", lambda world: OH_NNQuantParam_SetScales(OH_NNQuantParam_Create(), []))
cases("7-2", lambda world: OH_NNQuantParam_SetZeroPoints(OH_NNQuantParam_Create(), []))
cases("7-3", lambda world: OH_NNQuantParam_SetNumBits(OH_NNQuantParam_Create(), []))
cases("7-4", lambda world: OH_NNQuantParam_SetNumBits(OH_NNQuantParam_Create(), [4]))

# ---- 8 Model

cases("8.2-1", lambda world: OH_NNModel_AddTensorToModel(world.finished(), world.desc()))
cases(
    "8.2-2",
    lambda world: OH_NNModel_AddTensorToModel(world.empty_model(), world.desc([1, 0])),
    lambda world: OH_NNModel_AddTensorToModel(world.empty_model(), world.desc([1, -2])),
)
cases("8.2-3", lambda world: OH_NNModel_AddTensorToModel(world.empty_model(), world.desc([1 << 30])))
cases(
    "8.2-4",
    lambda world: OH_NNModel_AddTensorToModel(world.empty_model(), world.desc(None)),
    lambda world: OH_NNModel_AddTensorToModel(world.empty_model(), world.desc([1], OH_NN_UNKNOWN)),
    lambda world: OH_NNModel_AddTensorToModel(world.empty_model(), world.desc([-1, -1])),
    lambda world: OH_NNModel_AddTensorToModel(world.empty_model(), world.desc([(1 << 30) - 1])),
)
cases("8.3-1", lambda world: OH_NNModel_SetTensorData(world.tensors([4]), 0, b""))
cases("8.3-2", lambda world: OH_NNModel_SetTensorData(world.finished(), 0, X))
cases(
    "8.3-3",
    lambda world: OH_NNModel_SetTensorData(world.tensors([4]), 1, FOUR_FLOATS),
    lambda world: OH_NNModel_SetTensorData(world.empty_model(), 0, FOUR_FLOATS),
)
cases("8.3-5", lambda world: OH_NNModel_SetTensorData(world.tensors([-1, 4]), 0, FOUR_FLOATS))
cases(
    "8.3-6",
    lambda world: OH_NNModel_SetTensorData(world.tensors([4]), 0, bytes(15)),
    lambda world: OH_NNModel_SetTensorData(world.tensors([4]), 0, bytes(17)),
)
cases(
    "8.3-7",
    lambda world: OH_NNModel_SetTensorData(world.model(), 0, X),
    lambda world: OH_NNModel_SetTensorData(world.model(), 1, X),
)


@case("8.3-4")
def _(world: World) -> Any:
    model = world.tensors([4])
    ok(OH_NNModel_SetTensorData(model, 0, FOUR_FLOATS))
    return OH_NNModel_SetTensorData(model, 0, FOUR_FLOATS)


cases("8.4-1", lambda world: OH_NNModel_SetTensorQuantParams(world.finished(), 0, world.quant_param()))
cases("8.4-2", lambda world: OH_NNModel_SetTensorQuantParams(world.tensors([4]), 1, world.quant_param()))
cases("8.4-4", lambda world: OH_NNModel_SetTensorQuantParams(world.tensors([4]), 0, world.quant_param(bits=4)))
cases("8.4-5", lambda world: OH_NNModel_SetTensorQuantParams(world.tensors([4]), 0, OH_NNQuantParam_Create()))


@case("8.4-3")
def _(world: World) -> Any:
    quant = world.quant_param(2)
    ok(OH_NNQuantParam_SetScales(quant, [1.0]))
    return OH_NNModel_SetTensorQuantParams(world.tensors([4]), 0, quant)


@case("8.4-3")
def _(world: World) -> Any:
    quant = OH_NNQuantParam_Create()
    ok(OH_NNQuantParam_SetScales(quant, [1.0]))
    return OH_NNModel_SetTensorQuantParams(world.tensors([4]), 0, quant)


cases(
    "8.5-1",
    lambda world: OH_NNModel_SetTensorType(world.tensors([4]), 0, -1),
    lambda world: OH_NNModel_SetTensorType(world.tensors([4]), 0, 163),
)
cases("8.5-2", lambda world: OH_NNModel_SetTensorType(world.tensors([4]), 1, OH_NN_TENSOR))
cases("8.5-3", lambda world: OH_NNModel_SetTensorType(world.finished(), 0, OH_NN_TENSOR))


def _adding(world: World, params: Any = (), inputs: Any = (0, 1), outputs: Any = (2,), op: int = OH_NN_OPS_ADD) -> Any:
    """Add an operation to a model of three tensors and an activation."""
    return OH_NNModel_AddOperation(_with_activation(world), op, params, inputs, outputs)


def _with_activation(
    world: World, type_: int = OH_NN_ADD_ACTIVATIONTYPE, data: Any = b"\0", data_type: int = OH_NN_INT8
) -> Any:
    model = world.tensors([1, 4], [1, 4], [1, 4])
    ok(OH_NNModel_AddTensorToModel(model, world.desc([1], data_type)))
    ok(OH_NNModel_SetTensorType(model, 3, type_))
    if data is not None:
        ok(OH_NNModel_SetTensorData(model, 3, data))
    return model


cases("8.6-1", lambda world: OH_NNModel_AddOperation(world.finished(), OH_NN_OPS_RELU, [], [0], [1]))
cases(
    "8.6-2",
    lambda world: _adding(world, inputs=[]),
    lambda world: _adding(world, outputs=[]),
    lambda world: _adding(world, inputs=[0] * 201),
    lambda world: _adding(world, outputs=[2] * 201),
)
cases(
    "8.6-3",
    lambda world: _adding(world, params=[4]),
    lambda world: _adding(world, inputs=[0, 4]),
    lambda world: _adding(world, outputs=[4]),
)
cases(
    "8.6-4",
    lambda world: _adding(world, inputs=[0, 3]),
    lambda world: _adding(world, outputs=[3]),
)
cases("8.6-5", lambda world: _adding(world, outputs=[1]))
cases("8.6-6", lambda world: _adding(world, op=0), lambda world: _adding(world, op=109))
cases("8.6-7", lambda world: _adding(world, inputs=[0]), lambda world: _adding(world, inputs=[0], outputs=[1, 2]))
cases(
    "8.6-8",
    lambda world: OH_NNModel_AddOperation(_with_activation(world, OH_NN_MUL_ACTIVATION_TYPE), 1, [3], [0, 1], [2]),
    lambda world: _adding(world, params=[3, 3]),
)
cases(
    "8.6-9",
    lambda world: OH_NNModel_AddOperation(_with_activation(world, data_type=OH_NN_UINT8), 1, [3], [0, 1], [2]),
    lambda world: OH_NNModel_AddOperation(_with_activation(world, data=None), 1, [3], [0, 1], [2]),
    lambda world: OH_NNModel_AddOperation(_with_activation(world, data=b"\x07"), 1, [3], [0, 1], [2]),
)
cases("8.6-10", lambda world: _adding(world), lambda world: _adding(world, params=[3]))

cases("8.7-1", lambda world: OH_NNModel_SpecifyInputsAndOutputs(world.finished(), [0], [1]))
cases("8.7-2", lambda world: OH_NNModel_SpecifyInputsAndOutputs(world.model(), [0], [1]))
cases(
    "8.7-3",
    lambda world: OH_NNModel_SpecifyInputsAndOutputs(_with_activation(world), [], [2]),
    lambda world: OH_NNModel_SpecifyInputsAndOutputs(_with_activation(world), [0], []),
    lambda world: OH_NNModel_SpecifyInputsAndOutputs(_with_activation(world), [0] * 201, [2]),
    lambda world: OH_NNModel_SpecifyInputsAndOutputs(_with_activation(world), [0], [2] * 201),
)
cases(
    "8.7-4",
    lambda world: OH_NNModel_SpecifyInputsAndOutputs(_with_activation(world), [4], [2]),
    lambda world: OH_NNModel_SpecifyInputsAndOutputs(_with_activation(world), [0], [4]),
)
cases("8.7-5", lambda world: OH_NNModel_SpecifyInputsAndOutputs(_with_activation(world), [3], [2]))
cases("8.7-6", lambda world: OH_NNModel_SpecifyInputsAndOutputs(_with_activation(world), [0, 1], [1]))


@case("8.7-7")
def _(world: World) -> Any:
    model = world.tensors([4], [4])
    ok(OH_NNModel_SetTensorData(model, 0, FOUR_FLOATS))
    assert OH_NNModel_SpecifyInputsAndOutputs(model, [0], [0]) == OH_NN_INVALID_PARAMETER
    return OH_NNModel_SpecifyInputsAndOutputs(model, [0], [1])


@case("8.8-2")
def _(world: World) -> Any:
    model = world.tensors([4], [4])
    ok(OH_NNModel_AddOperation(model, OH_NN_OPS_RELU, [], [0], [1]))
    return OH_NNModel_Finish(model)


cases("8.8-1", lambda world: OH_NNModel_Finish(world.finished()))
cases(
    "8.8-2",
    lambda world: OH_NNModel_Finish(world.empty_model()),
    lambda world: OH_NNModel_Finish(world.tensors([4])),
)


@case("8.9-1")
def _(world: World) -> Any:
    world.connect("reference")
    model = world.finished()
    compilation = world.compilation(model)
    answer = OH_NNModel_Destroy(model)
    ok(OH_NNCompilation_Build(compilation))
    return answer


cases("8.10-1", lambda world: OH_NNModel_GetAvailableOperations(world.model(), 0))
cases("8.10-2", lambda world: OH_NNModel_GetAvailableOperations(world.finished(), 0))


@case("8.10-2")
def _(world: World) -> Any:
    world.connect("reference")
    return OH_NNModel_GetAvailableOperations(world.finished(), UNKNOWN_ID)


@case("8.10-3")
def _(world: World) -> Any:
    """The daemon is stopped rather than killed, so that it is still listed when the client asks it."""
    world.connect_own().stop()
    return OH_NNModel_GetAvailableOperations(world.finished(), 0)


@case("8.10-4")
def _(world: World) -> Any:
    world.connect("picky")
    model = world.tensors([4], [4], [4])
    ok(OH_NNModel_AddOperation(model, OH_NN_OPS_RELU, [], [0], [1]))
    ok(OH_NNModel_AddOperation(model, OH_NN_OPS_SUB, [], [0, 1], [2]))
    ok(OH_NNModel_SpecifyInputsAndOutputs(model, [0], [2]))
    ok(OH_NNModel_Finish(model))
    answer = OH_NNModel_GetAvailableOperations(model, 0)
    assert answer[1] == (True, False)
    return answer
