"""Every function once successfully, and once with a null pointer for each pointer parameter."""

import inspect
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import nnrt_client
from nnrt_client import InvalidParameter, oh_nn
from nnrt_client.c_interface.adapter import FUNCTIONS
from nnrt_client.c_interface.handles import Handle
from nnrt_client.oh_nn import *
from oh_nn.callbacks import DEADLINE_S, MINUTE_MS
from oh_nn.calls import CALLS, Call
from oh_nn.world import World, destroyed, legacy

# Values that a function returns along with an error code.
NOTHING: dict[str, tuple[Any, ...]] = {
    "OH_NNDevice_GetAllDevicesID": ((),),
    "OH_NNTensorDesc_GetElementCount": (0,),
    "OH_NNTensorDesc_GetByteSize": (0,),
    "OH_NNTensor_GetSize": (0,),
    "OH_NNTensor_GetOffset": (0,),
    "OH_NNCompilation_ExportCacheToBuffer": (0,),
    "OH_NNExecutor_GetInputCount": (0,),
    "OH_NNExecutor_GetOutputCount": (0,),
    "OH_NNExecutor_GetInputDimRange": (None, None),
}

by_name = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.function.__name__)


def failure(call: Call, code: Any) -> Any:
    """Return the result of a function that fails."""
    given = NOTHING.get(call.function.__name__, (None,))
    return {"code": code, "value": (code, *given), "pointer": None, "nothing": None}[call.returns]


def test_all_75_are_called() -> None:
    names = [call.function.__name__ for call in CALLS]
    public = vars(oh_nn)["__all__"]
    functions = {name for name in public if inspect.isfunction(getattr(oh_nn, name))} - {"last_error"}
    assert len(set(names)) == len(names) == 75
    assert set(names) == functions == {function.name for function in FUNCTIONS}


@by_name
def test_success(call: Call, world: World) -> None:
    answer = call.function(*call.arguments(world))
    if call.returns == "code":
        assert answer is OH_NN_SUCCESS
    elif call.returns == "value":
        assert answer[0] is OH_NN_SUCCESS
        assert len(answer) == 1 + len(NOTHING.get(call.function.__name__, (None,)))
        assert None not in answer
    elif call.returns == "pointer":
        assert answer is not None
        world.let_go(answer)
    else:
        assert answer is None


def is_pointer(argument: Any) -> bool:
    return not isinstance(argument, int)


@by_name
def test_null_pointers(call: Call, world: World) -> None:
    """None, a destroyed handle, and a handle of another kind."""
    for position, given in enumerate(call.arguments(world)):
        nulls = [None, destroyed(world), OH_NN_UInt32Array()] if isinstance(given, Handle) else [None]
        for null in nulls if is_pointer(given) else ():
            arguments = list(call.arguments(world))
            arguments[position] = null
            assert call.function(*arguments) == failure(call, OH_NN_INVALID_PARAMETER), (position, null)
            assert isinstance(oh_nn.last_error(), InvalidParameter)


# Values that no C compiler would accept. No small numbers, because they may be this process' descriptors.
JUNK: tuple[Any, ...] = (
    -1, 2**31, 2**64, -(2**70), 1.5, math.nan, "text", "\0", b"bytes", b"", [], [None], [-1], ["text"], [2**64], {},
    object(), np.zeros((2, 2)), np.array("text"),
)  # fmt: skip


@by_name
def test_junk(call: Call, world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Any object for any argument gives a return code, never an exception."""
    valid = call.arguments(world)
    for position in range(len(valid)):
        for junk in JUNK:
            arguments = [*valid[:position], junk, *valid[position + 1 :]]
            answer = call.function(*arguments)
            if call.returns == "pointer":
                world.let_go(answer)
            elif call.returns == "nothing":
                assert answer is None
            else:
                code = answer[0] if call.returns == "value" else answer
                assert isinstance(code, OH_NN_ReturnCode), (position, junk)
            if not call.function.__name__.startswith("OH_NNCompilation_"):
                assert not caplog.records, (position, junk)  # Unexpected exceptions are logged.


@pytest.mark.parametrize(
    "call",
    [call for call in CALLS if call.function.__name__.endswith("_Destroy")],
    ids=lambda call: call.function.__name__,
)
def test_destroying_twice(call: Call, world: World) -> None:
    (handle,) = call.arguments(world)
    call.function(handle)
    assert call.function(handle) == failure(call, OH_NN_INVALID_PARAMETER)


def test_counterparts_exist() -> None:
    """Each name in the page's last column exists in the object API."""
    for counterpart in {name for function in FUNCTIONS for name in function.counterpart.split(", ") if name}:
        owner, *names = counterpart.split(".")
        kind = getattr(nnrt_client, owner)
        for name in names:
            assert hasattr(kind, name) or f"self.{name} =" in inspect.getsource(kind), counterpart


def test_finishing_a_model_after_its_compilation_was_made(world: World) -> None:
    world.connect("reference")
    model = world.model()
    compilation = world.compilation(model)
    assert OH_NNCompilation_Build(compilation) == OH_NN_INVALID_PARAMETER
    assert OH_NNModel_Finish(model) == OH_NN_SUCCESS
    assert OH_NNCompilation_Build(compilation) == OH_NN_SUCCESS


def test_a_destroyed_tensor_takes_its_desc_along(world: World) -> None:
    world.connect("reference")
    tensor = world.tensor()
    desc = OH_NNTensor_GetTensorDesc(tensor)
    view = OH_NNTensor_GetDataBuffer(tensor)
    assert OH_NNTensor_Destroy(tensor) == OH_NN_SUCCESS
    assert OH_NNTensorDesc_GetShape(desc) == (OH_NN_INVALID_PARAMETER, None)
    # Views outlive the tensor.
    assert view is not None
    np.frombuffer(view, np.float32)[:] = 1


def test_memory_of_a_destroyed_executor(world: World) -> None:
    """The executor has freed it; accessing it does no harm."""
    world.connect("reference")
    executor = world.executor()
    memory = OH_NNExecutor_AllocateInputMemory(executor, 0, 16)
    OH_NNExecutor_Destroy(executor)
    assert memory is not None
    assert memory.data is not None
    memory.data[:] = bytes(16)
    other = world.executor()
    assert OH_NNExecutor_SetInputWithMemory(other, 0, legacy(), memory) == OH_NN_INVALID_PARAMETER


def test_tensors_over_one_descriptor(world: World) -> None:
    """The size is that of the whole memory, the buffer begins at the offset, and both tensors share the bytes."""
    world.connect("reference")
    whole = world.tensor((8,), np.arange(8))
    _, fd = OH_NNTensor_GetFd(whole)
    assert fd is not None
    part = world.kept(OH_NNTensor_CreateWithFd(0, world.desc((4,)), fd, 32, 12), OH_NNTensor_Destroy)
    assert OH_NNTensor_GetSize(part) == (OH_NN_SUCCESS, 32)
    assert OH_NNTensor_GetOffset(part) == (OH_NN_SUCCESS, 12)
    assert OH_NNTensor_Destroy(whole) == OH_NN_SUCCESS
    buffer = OH_NNTensor_GetDataBuffer(part)
    assert buffer is not None
    assert len(buffer) == 20
    assert list(np.frombuffer(buffer, np.float32)) == [3, 4, 5, 6, 7]


def test_of_several_threads_one_destroys(world: World) -> None:
    world.connect("reference")
    tensor = world.tensor()
    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(OH_NNTensor_Destroy, [tensor] * 8))
    assert answers == [OH_NN_SUCCESS] + [OH_NN_INVALID_PARAMETER] * 7


def test_a_callback_may_destroy_its_executor(world: World) -> None:
    world.connect("reference")
    executor = world.executor()
    done = threading.Event()

    def on_run_done(user_data: Any, code: Any, outputs: Any) -> None:
        OH_NNExecutor_Destroy(executor)
        done.set()

    assert OH_NNExecutor_SetOnRunDone(executor, on_run_done) == OH_NN_SUCCESS
    started = OH_NNExecutor_RunAsync(executor, [world.tensor()], [world.tensor()], MINUTE_MS, "mine")
    assert started == OH_NN_SUCCESS
    assert done.wait(DEADLINE_S)
    assert OH_NNExecutor_GetInputCount(executor) == (OH_NN_INVALID_PARAMETER, 0)
