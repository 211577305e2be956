"""Program as it is written in C: it builds a model tensor by tensor, compiles and runs it, and reads the results.

It creates the tensors of a run only from what the executor reports about them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client import oh_nn
from nnrt_client.oh_nn import *
from oh_nn.world import World, ok, value

AnyArray = NDArray[Any]

DTYPES = {
    OH_NN_BOOL: np.bool_,
    OH_NN_INT8: np.int8,
    OH_NN_UINT8: np.uint8,
    OH_NN_INT32: np.int32,
    OH_NN_INT64: np.int64,
    OH_NN_FLOAT16: np.float16,
    OH_NN_FLOAT32: np.float32,
}
DATA_TYPES = {np.dtype(dtype): data_type for data_type, dtype in DTYPES.items()}
# Size of an output whose shape is known only after the run.
ROOM_BYTES = 4096


class Program:
    """Model under construction, then its compilation and executor."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.model = world.empty_model()
        self.compilation: Any = None
        self.executor: Any = None
        self._count = 0

    def tensor(
        self,
        shape: Sequence[int] | None,
        data_type: int = OH_NN_FLOAT32,
        format: int = OH_NN_FORMAT_NONE,
        quant: tuple[float, int] | None = None,
    ) -> int:
        """Add a tensor to the model, quantized if `quant` has a scale and a zero point; return its index."""
        ok(OH_NNModel_AddTensorToModel(self.model, self.world.desc(shape, data_type, format)))
        index = self._count
        self._count += 1
        if quant is not None:
            params = self.world.kept(OH_NNQuantParam_Create(), OH_NNQuantParam_Destroy)
            ok(OH_NNQuantParam_SetScales(params, [quant[0]]))
            ok(OH_NNQuantParam_SetZeroPoints(params, [quant[1]]))
            ok(OH_NNQuantParam_SetNumBits(params, [8]))
            ok(OH_NNModel_SetTensorQuantParams(self.model, index, params))
        return index

    def constant(self, array: AnyArray, tensor_type: int = OH_NN_TENSOR) -> int:
        """Add a constant or a parameter of an operation to the model; return its index. A scalar has the shape [1]."""
        index = self.tensor(array.shape or (1,), DATA_TYPES[array.dtype])
        ok(OH_NNModel_SetTensorData(self.model, index, array.tobytes()))
        ok(OH_NNModel_SetTensorType(self.model, index, tensor_type))
        return index

    def add(self, op: int, inputs: Sequence[int], outputs: Sequence[int], parameters: Sequence[int] = ()) -> None:
        ok(OH_NNModel_AddOperation(self.model, op, parameters, inputs, outputs))

    def build(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Finish and compile the model for device 0, which must support every operation."""
        ok(OH_NNModel_SpecifyInputsAndOutputs(self.model, inputs, outputs))
        ok(OH_NNModel_Finish(self.model))
        assert all(value(OH_NNModel_GetAvailableOperations(self.model, 0)))
        self.compilation = self.world.built(self.model)
        self.executor = self.world.executor(compilation=self.compilation)

    def run(self, *arrays: AnyArray) -> list[AnyArray]:
        """Run the model, and return the outputs with the types and shapes of their tensors."""
        inputs = [self.input(index, array) for index, array in enumerate(arrays)]
        outputs = [self.output(index) for index in range(value(OH_NNExecutor_GetOutputCount(self.executor)))]
        ok(OH_NNExecutor_RunSync(self.executor, inputs, outputs))
        results = [contents(output) for output in outputs]
        for index, result in enumerate(results):
            assert value(OH_NNExecutor_GetOutputShape(self.executor, index)) == result.shape
        return results

    def input(self, index: int, array: AnyArray) -> Any:
        """Create a tensor for an input, with these elements."""
        desc = self.world.kept(OH_NNExecutor_CreateInputTensorDesc(self.executor, index), OH_NNTensorDesc_Destroy)
        if -1 in value(OH_NNTensorDesc_GetShape(desc)):
            ok(OH_NNTensorDesc_SetShape(desc, array.shape))
        tensor = self.world.kept(OH_NNTensor_Create(0, desc), OH_NNTensor_Destroy)
        buffer = OH_NNTensor_GetDataBuffer(tensor)
        assert buffer is not None
        buffer[: array.nbytes] = array.tobytes()
        return tensor

    def output(self, index: int) -> Any:
        """Create a tensor for an output."""
        desc = self.world.kept(OH_NNExecutor_CreateOutputTensorDesc(self.executor, index), OH_NNTensorDesc_Destroy)
        code, _ = OH_NNTensorDesc_GetByteSize(desc)
        if code == OH_NN_DYNAMIC_SHAPE:
            return self.world.kept(OH_NNTensor_CreateWithSize(0, desc, ROOM_BYTES), OH_NNTensor_Destroy)
        ok(code)
        return self.world.kept(OH_NNTensor_Create(0, desc), OH_NNTensor_Destroy)


def contents(tensor: Any) -> AnyArray:
    """Return a copy of a tensor's elements, with its desc's type and shape."""
    desc = OH_NNTensor_GetTensorDesc(tensor)
    assert desc is not None, oh_nn.last_error()
    shape, data_type = value(OH_NNTensorDesc_GetShape(desc)), value(OH_NNTensorDesc_GetDataType(desc))
    buffer = OH_NNTensor_GetDataBuffer(tensor)
    assert buffer is not None
    elements: AnyArray = np.array(np.ndarray(shape, DTYPES[data_type], buffer))
    return elements
