"""Cases of sections 10 and 11: executors, and inputs and outputs in API 9."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nnrt_client.oh_nn import *
from oh_nn.callbacks import MINUTE_MS, Callbacks
from oh_nn.case import case, cases
from oh_nn.world import World, X, floats, legacy, ok, value

GIB = 1 << 30


def _executor(world: World, shape: Any = (1, 4)) -> Any:
    world.connect("reference")
    return world.executor(shape)


def _silent(world: World, shape: Any = (1, 4)) -> Any:
    """Create an executor on a device that reports no dimension ranges."""
    world.connect("silent")
    return world.executor(shape)


def _faulty(world: World, fault: str, shape: Any = (1, 4)) -> Any:
    compilation = world.faulty(fault, shape)
    ok(OH_NNCompilation_Build(compilation))
    return world.executor(compilation=compilation)


# ---- 10.1 to 10.8


@case("10.1-1")
def _(world: World) -> Any:
    compilation = world.faulty("prepare")
    assert OH_NNExecutor_Construct(compilation) is None
    assert OH_NNCompilation_Build(compilation) == OH_NN_FAILED
    return OH_NNExecutor_Construct(compilation)


@case("10.2-1")
def _(world: World) -> Any:
    executor = _executor(world)
    OH_NNExecutor_Destroy(executor)
    return OH_NNExecutor_Destroy(executor)


@case("10.2-2")
def _(world: World) -> Any:
    executor = _faulty(world, "never ends")
    callbacks = Callbacks(executor)
    outputs = [world.tensor()]
    ok(OH_NNExecutor_RunAsync(executor, [world.tensor(values=X)], outputs, MINUTE_MS, "mine"))
    answer = OH_NNExecutor_Destroy(executor)
    assert callbacks.calls.get_nowait() == ("done", "mine", OH_NN_FAILED, outputs)
    return answer


cases("10.5-1", lambda world: OH_NNExecutor_CreateInputTensorDesc(_executor(world), 1))
cases("10.6-1", lambda world: OH_NNExecutor_CreateOutputTensorDesc(_executor(world), 1))
cases("10.7-1", lambda world: OH_NNExecutor_GetInputDimRange(_executor(world), 1))
cases("10.7-2", lambda world: OH_NNExecutor_GetInputDimRange(_silent(world), 0))
cases("10.7-3", lambda world: OH_NNExecutor_GetInputDimRange(_faulty(world, "ranges"), 0))


@case("10.7-5")
def _(world: World) -> Any:
    answer = OH_NNExecutor_GetInputDimRange(_executor(world), 0)
    assert answer[1:] == ((1, 4), (1, 4))
    return answer


cases("10.8-1", lambda world: OH_NNExecutor_GetOutputShape(_executor(world), 1))


@case("10.8-2")
def _(world: World) -> Any:
    answer = OH_NNExecutor_GetOutputShape(_executor(world, (-1, 4)), 0)
    assert answer[1] == (-1, 4)
    return answer


@case("10.8-3")
def _(world: World) -> Any:
    executor = _executor(world, (-1, 4))
    output = world.tensor((-1, 4), size=64)
    ok(OH_NNExecutor_RunSync(executor, [world.tensor((3, 4))], [output]))
    answer = OH_NNExecutor_GetOutputShape(executor, 0)
    assert answer[1] == value(OH_NNTensorDesc_GetShape(OH_NNTensor_GetTensorDesc(output))) == (3, 4)
    return answer


@case("10.8-4")
def _(world: World) -> Any:
    executor = _executor(world, (-1, 4))
    output = world.tensor((-1, 4), size=47)
    assert OH_NNExecutor_RunSync(executor, [world.tensor((3, 4))], [output]) == OH_NN_INVALID_PARAMETER
    answer = OH_NNExecutor_GetOutputShape(executor, 0)
    assert answer[1] == (3, 4)
    return answer


# ---- 10.11 RunSync

Run = Callable[[World, Any, Any, Any], Any]


def _run_sync(world: World, executor: Any, inputs: Any, outputs: Any) -> Any:
    return OH_NNExecutor_RunSync(executor, inputs, outputs)


def _run_async(world: World, executor: Any, inputs: Any, outputs: Any) -> Any:
    Callbacks(executor)
    return OH_NNExecutor_RunAsync(executor, inputs, outputs, MINUTE_MS, "mine")


def _few_or_many(run: Run) -> list[Callable[[World], Any]]:
    return [
        lambda world: run(world, _executor(world), [], [world.tensor()]),
        lambda world: run(world, _executor(world), [world.tensor()], []),
        lambda world: run(world, _executor(world), [world.tensor()] * 201, [world.tensor()]),
        lambda world: run(world, _executor(world), [world.tensor()], [world.tensor()] * 201),
    ]


def _misfits(run: Run) -> list[Callable[[World], Any]]:
    """Return bodies that run tensors whose dimensions the device or the model refuses."""
    return [
        lambda world: run(world, _executor(world), [world.tensor((2, 4))], [world.tensor()]),
        lambda world: run(world, _executor(world), [world.tensor((4,))], [world.tensor()]),
        lambda world: run(world, _executor(world, (-1, 4)), [world.tensor((-1, 4), size=16)], [world.tensor()]),
        lambda world: run(world, _faulty(world, "none", (-1, 4)), [world.tensor((2, 4))], [world.tensor()]),
    ]


cases("10.11-1", *_few_or_many(_run_sync))
cases(
    "10.11-2",
    lambda world: _run_sync(world, _executor(world), [world.tensor(), world.tensor()], [world.tensor()]),
    lambda world: _run_sync(world, _executor(world), [world.tensor()], [world.tensor(), world.tensor()]),
)


cases("10.11-4a", lambda world: _run_sync(world, _executor(world), [None], [world.tensor()]))
cases("10.11-4b", lambda world: _run_sync(world, _silent(world), [None], [world.tensor()]))
cases("10.11-5", *_misfits(_run_sync))
cases("10.11-6", lambda world: _run_sync(world, _executor(world), [world.tensor()], [None]))


def _reshaped(world: World, size: int, shape: Any) -> Any:
    """Create a tensor of this size, and set another shape in its desc."""
    tensor = world.tensor((-1, 4), size=size)
    ok(OH_NNTensorDesc_SetShape(OH_NNTensor_GetTensorDesc(tensor), shape))
    return tensor


cases(
    "10.11-7",
    lambda world: _run_sync(world, _executor(world, (-1, 4)), [_reshaped(world, 16, (2, 4))], [world.tensor()]),
    lambda world: _run_sync(world, _executor(world, (-1, 4)), [world.tensor()], [_reshaped(world, 16, (2, 4))]),
)


def _other(world: World, **of_desc: Any) -> Any:
    """Create a tensor with another desc."""
    return world.kept(OH_NNTensor_Create(0, world.desc(**of_desc)), OH_NNTensor_Destroy)


@case("10.11-8")
def _(world: World) -> Any:
    """A tensor's format must match the model's, if the model declares one."""
    world.connect("reference")
    model = world.empty_model()
    for _ in range(2):
        ok(OH_NNModel_AddTensorToModel(model, world.desc((1, 2, 2, 1), format=OH_NN_FORMAT_NHWC)))
    ok(OH_NNModel_AddOperation(model, OH_NN_OPS_RELU, [], [0], [1]))
    ok(OH_NNModel_SpecifyInputsAndOutputs(model, [0], [1]))
    ok(OH_NNModel_Finish(model))
    executor = world.executor(compilation=world.built(model))
    given = _other(world, shape=(1, 2, 2, 1), format=OH_NN_FORMAT_NCHW)
    return _run_sync(world, executor, [given], [_other(world, shape=(1, 2, 2, 1))])


cases(
    "10.11-8",
    lambda world: _run_sync(world, _executor(world), [_other(world, data_type=OH_NN_INT32)], [world.tensor()]),
    lambda world: _run_sync(world, _executor(world), [world.tensor()], [_other(world, data_type=OH_NN_INT32)]),
    lambda world: _run_sync(world, _silent(world), [world.tensor((1, 5))], [world.tensor()]),
    lambda world: _run_sync(world, _executor(world), [world.tensor()], [world.tensor((1, 5))]),
)
cases(
    "10.11-9",
    lambda world: _run_sync(world, _executor(world, (-1, 4)), [world.tensor((3, 4))], [world.tensor((-1, 4), size=47)]),
)
cases("10.11-10", lambda world: _run_sync(world, _faulty(world, "run"), [world.tensor()], [world.tensor()]))


@case("10.11-14")
def _(world: World) -> Any:
    world.connect("silent", "reference")
    compilation = world.compilation()
    ok(OH_NNCompilation_SetDevice(compilation, world.ids()[1]))
    ok(OH_NNCompilation_Build(compilation))
    executor = world.executor(compilation=compilation)
    output = world.tensor()
    answer = OH_NNExecutor_RunSync(executor, [world.tensor(values=-X)], [output])
    assert list(floats(output)) == [0, 0, 0, 0]
    return answer


# ---- 10.12 RunAsync

cases(
    "10.12-1",
    *_few_or_many(_run_async),
    *_misfits(_run_async),
    lambda world: _run_async(world, _executor(world), [world.tensor()], [None]),
)
cases(
    "10.12-2",
    lambda world: OH_NNExecutor_RunAsync(_executor(world), [world.tensor()], [world.tensor()], 0, "mine"),
    lambda world: OH_NNExecutor_RunAsync(_executor(world), [world.tensor()], [world.tensor()], -1, "mine"),
)
cases(
    "10.12-3",
    lambda world: OH_NNExecutor_RunAsync(_executor(world), [world.tensor()], [world.tensor()], MINUTE_MS, "mine"),
)


@case("10.12-5")
def _(world: World) -> Any:
    """The callback gets the objects that were passed in, and the output's shape is known."""
    executor = _executor(world, (-1, 4))
    callbacks = Callbacks(executor)
    user_data, outputs = object(), [world.tensor((-1, 4), size=64)]
    answer = OH_NNExecutor_RunAsync(executor, [world.tensor((2, 4), -np.ones(8))], outputs, MINUTE_MS, user_data)
    _, given, code, same = callbacks.only()
    assert (given is user_data, code, same is outputs) == (True, OH_NN_SUCCESS, True)
    assert value(OH_NNExecutor_GetOutputShape(executor, 0)) == (2, 4)
    return answer


@case("10.12-6")
def _(world: World) -> Any:
    executor = _faulty(world, "run")
    callbacks = Callbacks(executor)
    outputs = [world.tensor()]
    answer = OH_NNExecutor_RunAsync(executor, [world.tensor()], outputs, MINUTE_MS, "mine")
    assert callbacks.only() == ("done", "mine", OH_NN_UNAVAILABLE_DEVICE, outputs)
    return answer


@case("10.12-7")
def _(world: World) -> Any:
    """A run that timed out doesn't write its output."""
    executor = _faulty(world, "never ends")
    callbacks = Callbacks(executor)
    outputs = [world.tensor(values=X)]
    answer = OH_NNExecutor_RunAsync(executor, [world.tensor()], outputs, 50, "mine")
    assert callbacks.only() == ("done", "mine", OH_NN_TIMEOUT, outputs)
    assert list(floats(outputs[0])) == [1, 2, 3, 4]
    return answer


@case("10.12-10")
def _(world: World) -> Any:
    executor = _executor(world)
    callbacks = Callbacks(executor)
    given, output = world.tensor(values=X), world.tensor()
    results = floats(output)
    answer = OH_NNExecutor_RunAsync(executor, [given], [output], MINUTE_MS, "mine")
    ok(OH_NNTensor_Destroy(given))
    ok(OH_NNTensor_Destroy(output))
    assert callbacks.only()[2] == OH_NN_SUCCESS
    assert list(results) == [1, 2, 3, 4]
    return answer


# ---- 11.2 AddTensor

QUANT = OH_NN_QuantParam([8], [0.5], [3])

cases("11.2-1", lambda world: OH_NNModel_AddTensor(world.empty_model(), legacy(data_type=13)))
cases("11.2-2", lambda world: OH_NNModel_AddTensor(world.empty_model(), legacy(type=163)))
cases(
    "11.2-3",
    lambda world: OH_NNModel_AddTensor(world.empty_model(), legacy([1, 0])),
    lambda world: OH_NNModel_AddTensor(world.empty_model(), legacy([1, -2])),
)
cases("11.2-4", lambda world: OH_NNModel_AddTensor(world.empty_model(), legacy([1] * 201)))
cases(
    "11.2-5",
    lambda world: OH_NNModel_AddTensor(world.empty_model(), legacy(quantParam=OH_NN_QuantParam(None, [0.5], [3]))),
    lambda world: OH_NNModel_AddTensor(world.empty_model(), legacy(quantParam=OH_NN_QuantParam([8], None, [3]))),
    lambda world: OH_NNModel_AddTensor(world.empty_model(), legacy(quantParam=OH_NN_QuantParam([8], [0.5], None))),
    lambda world: OH_NNModel_AddTensor(world.empty_model(), legacy(quantParam=OH_NN_QuantParam([4], [0.5], [3]))),
)
cases("11.2-6", lambda world: OH_NNModel_AddTensor(world.finished(), legacy()))

# ---- 11.3 SetInput, and 11.10 the same with memory


def _set_input(
    world: World, tensor: Any = None, data: Any = X, index: int = 0, shape: Any = (1, 4), executor: Any = None
) -> Any:
    return OH_NNExecutor_SetInput(executor or _executor(world, shape), index, tensor or legacy(), data)


def _set_input_memory(
    world: World, tensor: Any = None, data: Any = X, index: int = 0, shape: Any = (1, 4), executor: Any = None
) -> Any:
    executor = executor or _executor(world, shape)
    memory = world.memory(executor, np.asarray(data).nbytes)
    return OH_NNExecutor_SetInputWithMemory(executor, index, tensor or legacy(), memory)


def _ill_indexed(set_input: Callable[..., Any]) -> list[Callable[[World], Any]]:
    return [
        lambda world: set_input(world, index=1),
        lambda world: set_input(world, legacy((4,)), shape=(-1, 4)),
        lambda world: set_input(world, legacy((2, 4)), np.zeros(8, "f4"), executor=_faulty(world, "none", (-1, 4))),
    ]


def _malformed(set_input: Callable[..., Any]) -> list[Callable[[World], Any]]:
    return [
        lambda world: set_input(world, legacy(data_type=13)),
        lambda world: set_input(world, legacy(type=163)),
        lambda world: set_input(world, legacy(quantParam=OH_NN_QuantParam([4], [0.5], [3]))),
    ]


def _unknown(set_input: Callable[..., Any]) -> list[Callable[[World], Any]]:
    return [
        lambda world: set_input(world, legacy((-1, 4)), shape=(-1, 4)),
        lambda world: set_input(world, legacy((0, 4)), shape=(-1, 4)),
    ]


def _differing(set_input: Callable[..., Any]) -> list[Callable[[World], Any]]:
    return [
        lambda world: set_input(world, legacy(data_type=OH_NN_INT32)),
        lambda world: set_input(world, legacy(type=OH_NN_ADD_ACTIVATIONTYPE)),
        lambda world: set_input(world, legacy((2, 2))),
        lambda world: set_input(world, legacy((1, 5)), np.zeros(5, "f4"), executor=_silent(world)),
    ]


cases("11.3-1", lambda world: _set_input(world, data=b""))
cases("11.3-2", *_ill_indexed(_set_input))
cases("11.3-3", *_malformed(_set_input))
cases("11.3-4", *_unknown(_set_input))
cases("11.3-5", *_differing(_set_input))
cases(
    "11.3-6",
    lambda world: _set_input(world, legacy(quantParam=QUANT)),
    lambda world: _set_input(world, data=np.zeros(5, "f4")),
)
cases("11.3-7", lambda world: _set_input(world, data=bytes(15)))
cases(
    "11.10-1",
    *(
        body
        for conditions in (_ill_indexed, _malformed, _unknown, _differing)
        for body in conditions(_set_input_memory)
    ),
    lambda world: _set_input_memory(world, data=bytes(15)),
)


@case("11.10-2")
def _(world: World) -> Any:
    executor = _executor(world)
    memory = world.memory(executor)
    answer = OH_NNExecutor_SetInputWithMemory(executor, 0, legacy(), memory)
    memory.data[:] = X.tobytes()
    output = np.zeros(4, np.float32)
    ok(OH_NNExecutor_SetOutput(executor, 0, output))
    ok(OH_NNExecutor_Run(executor))
    assert list(output) == [1, 2, 3, 4]
    return answer


# ---- 11.4 SetOutput, and 11.11 the same with memory

cases("11.4-1", lambda world: OH_NNExecutor_SetOutput(_executor(world), 0, bytearray()))
cases("11.4-2", lambda world: OH_NNExecutor_SetOutput(_executor(world), 1, bytearray(16)))
cases("11.4-3", lambda world: OH_NNExecutor_SetOutput(_executor(world), 0, bytearray(15)))
cases("11.4-4", lambda world: OH_NNExecutor_SetOutput(_executor(world, (-1, 4)), 0, bytearray(1)))


@case("11.11-1")
def _(world: World) -> Any:
    executor = _executor(world)
    return OH_NNExecutor_SetOutputWithMemory(executor, 1, world.memory(executor, for_output=True))


@case("11.11-1")
def _(world: World) -> Any:
    executor = _executor(world)
    return OH_NNExecutor_SetOutputWithMemory(executor, 0, world.memory(executor, 15, for_output=True))


@case("11.11-2")
def _(world: World) -> Any:
    executor = world.bound(_executor(world))
    memory = world.memory(executor, for_output=True)
    ok(OH_NNExecutor_SetOutputWithMemory(executor, 0, memory))
    answer = OH_NNExecutor_SetOutputWithMemory(executor, 0, memory)
    ok(OH_NNExecutor_Run(executor))
    assert bytes(memory.data) == X.tobytes()
    return answer


# ---- 11.5 Run

cases("11.5-1", lambda world: OH_NNExecutor_Run(_executor(world)))


@case("11.5-1")
def _(world: World) -> Any:
    executor = _executor(world)
    ok(OH_NNExecutor_SetInput(executor, 0, legacy(), X))
    return OH_NNExecutor_Run(executor)


@case("11.5-2")
def _(world: World) -> Any:
    executor = world.bound(_executor(world))
    memory = world.memory(executor)
    ok(OH_NNExecutor_SetInputWithMemory(executor, 0, legacy(), memory))
    OH_NNExecutor_DestroyInputMemory(executor, 0, memory)
    return OH_NNExecutor_Run(executor)


@case("11.5-2")
def _(world: World) -> Any:
    executor = world.bound(_executor(world))
    memory = world.memory(executor, for_output=True)
    ok(OH_NNExecutor_SetOutputWithMemory(executor, 0, memory))
    OH_NNExecutor_DestroyOutputMemory(executor, 0, memory)
    return OH_NNExecutor_Run(executor)


cases("11.5-3", lambda world: OH_NNExecutor_Run(world.bound(_executor(world, (-1, 4)), bytearray(15))))
cases("11.5-4", lambda world: OH_NNExecutor_Run(world.bound(_faulty(world, "run"))))


@case("11.5-5")
def _(world: World) -> Any:
    """SetInput copies the input."""
    executor = _executor(world)
    given, output = X.copy(), np.zeros(4, np.float32)
    ok(OH_NNExecutor_SetInput(executor, 0, legacy(), given))
    given[:] = 9
    ok(OH_NNExecutor_SetOutput(executor, 0, output))
    ok(OH_NNExecutor_Run(executor))
    output[:] = 0
    answer = OH_NNExecutor_Run(executor)
    assert list(output) == [1, 2, 3, 4]
    return answer


# ---- 11.6 to 11.9: memory

cases(
    "11.6-1",
    lambda world: OH_NNExecutor_AllocateInputMemory(_executor(world), 1, 16),
    lambda world: OH_NNExecutor_AllocateInputMemory(_executor(world), 0, 0),
    lambda world: OH_NNExecutor_AllocateInputMemory(_executor(world), 0, GIB + 1),
)
cases(
    "11.7-1",
    lambda world: OH_NNExecutor_AllocateOutputMemory(_executor(world), 1, 16),
    lambda world: OH_NNExecutor_AllocateOutputMemory(_executor(world), 0, 0),
    lambda world: OH_NNExecutor_AllocateOutputMemory(_executor(world), 0, GIB + 1),
)


def _not_its_own(*, for_output: bool) -> Callable[[World], Any]:
    def body(world: World) -> Any:
        destroy = OH_NNExecutor_DestroyOutputMemory if for_output else OH_NNExecutor_DestroyInputMemory
        other_side = OH_NNExecutor_DestroyInputMemory if for_output else OH_NNExecutor_DestroyOutputMemory
        executor = _executor(world)
        memory = world.memory(executor, for_output=for_output)
        destroy(world.executor(), 0, memory)
        destroy(executor, 1, memory)
        destroy(None, 0, memory)
        other_side(executor, 0, memory)
        assert (memory.length, len(memory.data)) == (16, 16)
        answer = destroy(executor, 0, memory)
        assert (memory.length, memory.data) == (0, None)
        return answer

    return body


cases("11.8-1", _not_its_own(for_output=False))
cases("11.9-1", _not_its_own(for_output=True))
