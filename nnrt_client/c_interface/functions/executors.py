"""Functions of executors and their runs."""

from collections.abc import Sequence
from typing import Any

from nnrt_client.c_interface.adapter import (
    returns_code,
    returns_nothing,
    returns_pointer,
    returns_two_values,
    returns_value,
)
from nnrt_client.c_interface.callbacks import (
    AsyncRun,
    NN_OnRunDone,
    NN_OnServiceDied,
    wrap_on_run_done,
    wrap_on_service_died,
)
from nnrt_client.c_interface.handles import (
    SCALAR_SHAPE,
    NN_Tensor,
    NN_TensorDesc,
    OH_NNCompilation,
    OH_NNExecutor,
    tensors_of,
)
from nnrt_client.run.executor import Executor, packed_ends
from nnrt_client.run.result import OutputTooSmall
from nnrt_hdi.errors import Unsupported


@returns_pointer("OH_NNExecutor", "Executor")
def OH_NNExecutor_Construct(compilation: OH_NNCompilation | None) -> OH_NNExecutor:
    """Create an executor of a compilation that has been built. A program with strings, sequences or maps has none."""
    executor = Executor(OH_NNCompilation.require(compilation))
    packed = packed_ends(executor)
    if packed:
        executor.close()
        raise Unsupported(f"it takes or returns {packed[0]}, and a C program has tensors of numbers only")
    return OH_NNExecutor(executor)


@returns_nothing("Executor.close")
def OH_NNExecutor_Destroy(executor: OH_NNExecutor | None) -> None:
    """Destroy an executor: end its runs with FAILED, wait for their callbacks, and free its memory."""
    OH_NNExecutor.destroy(executor)


@returns_value("count", 0, "Executor.input_count")
def OH_NNExecutor_GetInputCount(executor: OH_NNExecutor | None) -> int:
    """Return the number of inputs of a run."""
    return OH_NNExecutor.require(executor).input_count


@returns_value("count", 0, "Executor.output_count")
def OH_NNExecutor_GetOutputCount(executor: OH_NNExecutor | None) -> int:
    """Return the number of outputs of a run."""
    return OH_NNExecutor.require(executor).output_count


@returns_pointer("NN_TensorDesc", "Executor.input_desc")
def OH_NNExecutor_CreateInputTensorDesc(executor: OH_NNExecutor | None, index: int) -> NN_TensorDesc:
    """Create a desc of an input, with the declared shape, or [1] for a scalar. The caller destroys it."""
    return NN_TensorDesc.from_desc(OH_NNExecutor.require(executor).input_desc(index))


@returns_pointer("NN_TensorDesc", "Executor.output_desc")
def OH_NNExecutor_CreateOutputTensorDesc(executor: OH_NNExecutor | None, index: int) -> NN_TensorDesc:
    """Create a desc of an output, with the declared shape, or [1] for a scalar. The caller destroys it."""
    return NN_TensorDesc.from_desc(OH_NNExecutor.require(executor).output_desc(index))


@returns_two_values("min dims", "max dims", "Executor.input_dim_range")
def OH_NNExecutor_GetInputDimRange(executor: OH_NNExecutor | None, index: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the least and greatest dimensions that the device accepts. OPERATION_FORBIDDEN if it reports none."""
    least, most = OH_NNExecutor.require(executor).input_dim_range(index)
    return least or SCALAR_SHAPE, most or SCALAR_SHAPE


@returns_value("shape", None, "RunResult.shapes")
def OH_NNExecutor_GetOutputShape(executor: OH_NNExecutor | None, output_index: int) -> Sequence[int]:
    """Return an output's shape in the last run, or the declared one before a run.

    If a run failed because an output's memory was too small, it is the shape that the run needed.
    """
    OH_NNExecutor.require(executor)
    assert isinstance(executor, OH_NNExecutor)
    return executor.output_shape(output_index)


@returns_code("Executor.set_on_run_done")
def OH_NNExecutor_SetOnRunDone(executor: OH_NNExecutor | None, on_run_done: NN_OnRunDone | None) -> None:
    """Set a callback, which later runs call as on_run_done(user_data, code, outputs) with the outputs of `RunAsync`."""
    OH_NNExecutor.require(executor).set_on_run_done(wrap_on_run_done(on_run_done))


@returns_code("Executor.set_on_service_died")
def OH_NNExecutor_SetOnServiceDied(executor: OH_NNExecutor | None, on_service_died: NN_OnServiceDied | None) -> None:
    """Set a callback, which later runs call as on_service_died(user_data) when their daemon dies."""
    OH_NNExecutor.require(executor).set_on_service_died(wrap_on_service_died(on_service_died))


@returns_code("Executor.run_sync")
def OH_NNExecutor_RunSync(
    executor: OH_NNExecutor | None,
    input_tensors: Sequence[NN_Tensor | None] | None,
    output_tensors: Sequence[NN_Tensor | None] | None,
) -> None:
    """Run the model. It writes the results to the outputs' memory, and their shapes to the outputs' descs."""
    inner = OH_NNExecutor.require(executor)
    assert isinstance(executor, OH_NNExecutor)
    try:
        result = inner.run_sync(tensors_of(input_tensors, "inputs"), tensors_of(output_tensors, "outputs"))
    except OutputTooSmall as error:
        executor.store_shapes(error)
        raise
    executor.store_shapes(result)


@returns_code("Executor.run_async, Executor.submit")
def OH_NNExecutor_RunAsync(
    executor: OH_NNExecutor | None,
    input_tensors: Sequence[NN_Tensor | None] | None,
    output_tensors: Sequence[NN_Tensor | None] | None,
    timeout: int,
    user_data: Any,
) -> None:
    """Start a run. After SUCCESS exactly one callback follows. `timeout` is in milliseconds."""
    inner = OH_NNExecutor.require(executor)
    inputs, outputs = tensors_of(input_tensors, "inputs"), tensors_of(output_tensors, "outputs")
    assert isinstance(executor, OH_NNExecutor)
    run = None if user_data is None else AsyncRun(user_data, output_tensors, executor)
    inner.run_async(inputs, outputs, timeout_ms=timeout, user_data=run)
