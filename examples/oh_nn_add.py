"""Compute relu(a + b) with NNRt's C functions. NNRT_DEVICES has the addresses of the devices."""

import sys

import numpy as np

from nnrt_client.oh_nn import *


def check(result: object) -> None:
    if result is None or (isinstance(result, OH_NN_ReturnCode) and result != OH_NN_SUCCESS):
        sys.exit(f"{last_error()}")


def build_model() -> OH_NNModel | None:
    model = OH_NNModel_Construct()
    desc = OH_NNTensorDesc_Create()
    check(OH_NNTensorDesc_SetDataType(desc, OH_NN_FLOAT32))
    check(OH_NNTensorDesc_SetShape(desc, [1, 4]))
    for _ in range(3):  # 0 and 1 are a and b, 2 is the sum
        check(OH_NNModel_AddTensorToModel(model, desc))
    OH_NNTensorDesc_Destroy(desc)
    activation = OH_NNTensorDesc_Create()
    check(OH_NNTensorDesc_SetDataType(activation, OH_NN_INT8))
    check(OH_NNTensorDesc_SetShape(activation, [1]))
    check(OH_NNModel_AddTensorToModel(model, activation))
    OH_NNTensorDesc_Destroy(activation)
    check(OH_NNModel_SetTensorType(model, 3, OH_NN_ADD_ACTIVATIONTYPE))
    check(OH_NNModel_SetTensorData(model, 3, np.int8(OH_NN_FUSED_RELU)))
    check(OH_NNModel_AddOperation(model, OH_NN_OPS_ADD, [3], [0, 1], [2]))
    check(OH_NNModel_SpecifyInputsAndOutputs(model, [0, 1], [2]))
    check(OH_NNModel_Finish(model))
    return model


def tensor(desc: NN_TensorDesc | None) -> NN_Tensor | None:
    made = OH_NNTensor_Create(0, desc)
    check(made)
    OH_NNTensorDesc_Destroy(desc)
    return made


model = build_model()
compilation = OH_NNCompilation_Construct(model)
OH_NNModel_Destroy(model)
check(OH_NNCompilation_SetDevice(compilation, 0))
check(OH_NNCompilation_Build(compilation))
executor = OH_NNExecutor_Construct(compilation)
OH_NNCompilation_Destroy(compilation)
inputs = [tensor(OH_NNExecutor_CreateInputTensorDesc(executor, index)) for index in range(2)]
outputs = [tensor(OH_NNExecutor_CreateOutputTensorDesc(executor, 0))]
for given, values in zip(inputs, ([1, 2, 3, 4], [10, -20, 30, -40]), strict=True):
    np.frombuffer(OH_NNTensor_GetDataBuffer(given) or b"", np.float32)[:] = values
check(OH_NNExecutor_RunSync(executor, inputs, outputs))
print(np.frombuffer(OH_NNTensor_GetDataBuffer(outputs[0]) or b"", np.float32))
for handle in inputs + outputs:
    OH_NNTensor_Destroy(handle)
OH_NNExecutor_Destroy(executor)
