"""The way of API 9: inputs and outputs set one by one, and tensors of models as one struct."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocked_call import BlockedCall
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from observer import Observer
from shared_memory import held

from nnrt_client import (
    Bindings,
    Compilation,
    DataType,
    Executor,
    Format,
    InvalidParameter,
    LegacyTensor,
    Memory,
    Model,
    NnrtError,
    OperationForbidden,
    OperationType,
    OutOfMemory,
    OutputTooSmall,
    QuantParam,
    Runtime,
    TensorDesc,
    TensorType,
    UnavailableDevice,
)
from nnrt_client.model.model import parts_of

GIB = 1 << 30
FOUR = LegacyTensor(DataType.FLOAT32, [4])


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.fixture(autouse=True)
def gives_all_memory_back() -> Iterator[None]:
    """Closing bindings frees what was allocated through them."""
    before = held()
    yield
    assert held() == before


def executor_of(closing: ExitStack, address: str, model: Model) -> Executor:
    compilation = closing.enter_context(Compilation(model, closing.enter_context(Runtime([address])).device()))
    compilation.build()
    return closing.enter_context(Executor(compilation))


@pytest.fixture
def executor(closing: ExitStack, cached_daemon: DaemonProcess) -> Executor:
    """The identity of any length."""
    return executor_of(closing, cached_daemon.address, identity_model())


@pytest.fixture
def bindings(closing: ExitStack, executor: Executor) -> Bindings:
    return closing.enter_context(Bindings(executor))


# ---- running


def test_runs_do_not_overlap(closing: ExitStack, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """They write to the same places, so one waits for the other, even where the device could take both."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}", "--concurrent-runs", "2")
    bindings = closing.enter_context(Bindings(executor_of(closing, daemon.address, identity_model())))
    output = bytearray(4)
    bindings.set_input(0, LegacyTensor(DataType.FLOAT32, [1]), floats(7))
    bindings.set_output(0, output)
    with Observer(daemon.address) as observer:
        calls = [BlockedCall(bindings.run) for _ in range(2)]
        observer.wait_for(lambda state: state.running == 1)
        for call in calls:
            call.require_blocked()
        assert (observer.state().running, observer.state().queued) == (1, 0)
        gate.write_bytes(b"")
        observer.wait_for(lambda state: state.running == 1 and daemon.log().count("run started") == 2)
        gate.write_bytes(b"")
    assert [call.wait().error for call in calls] == [None, None]
    assert output == floats(7).tobytes()


def test_inputs_are_copied_and_outputs_referenced(bindings: Bindings) -> None:
    """A run repeats with the data of the time they were set; the output is written again."""
    data, output = floats(1, 2, 3, 4), bytearray(16)
    bindings.set_input(0, FOUR, data)
    bindings.set_output(0, output)
    data[:] = 9
    for _ in range(2):
        bindings.run()
        assert output == floats(1, 2, 3, 4).tobytes()
        output[:] = bytes(16)
    bindings.set_input(0, FOUR, data)
    bindings.run()
    assert output == data.tobytes()


def test_memories_are_read_when_a_run_begins(bindings: Bindings) -> None:
    """A run reads what was written after they were set; results are in the memory, and nothing beyond."""
    source, target = bindings.allocate_input_memory(0, 40), bindings.allocate_output_memory(0, 40)
    assert (source.length, len(source.data), source.data.readonly) == (40, 40, False)
    bindings.set_input_memory(0, FOUR, source)
    bindings.set_output_memory(0, target)
    target.data[:] = b"\xff" * 40
    for values in (floats(1, 2, 3, 4), floats(5, 6, 7, 8)):
        source.data[:16] = values.tobytes()
        bindings.run()
        assert bytes(target.data) == values.tobytes() + b"\xff" * 24
    bindings.set_input(0, LegacyTensor(DataType.FLOAT32, [1]), floats(3))
    bindings.run()
    assert bytes(target.data[:4]) == floats(3).tobytes()
    bindings.set_input_memory(0, FOUR, source)
    bindings.set_output(0, output := np.zeros(4, np.float32))
    bindings.run()
    np.testing.assert_array_equal(output, [5, 6, 7, 8])


@pytest.mark.parametrize(
    ("data", "length"),
    [
        pytest.param(floats(1, 2, 3, 4).tobytes(), None, id="bytes"),
        pytest.param(floats(1, 2, 3, 4, 5), None, id="longer than the tensor"),
        pytest.param(floats(1, 2, 3, 4, 5), 17, id="a length between"),
        pytest.param(floats(1, 2, 3, 4).reshape(2, 2), 16, id="another shape"),
        pytest.param(memoryview(floats(1, 2, 3, 4)), 16, id="a view"),
        pytest.param(floats(1, 2, 3, 4).view(np.int64), None, id="another data type"),
    ],
)
def test_data_are_bytes(bindings: Bindings, data: Any, length: int | None) -> None:
    """The first bytes count, as many as the tensor has."""
    bindings.set_input(0, TensorDesc(DataType.FLOAT32, [4]), data, length)
    bindings.set_output(0, output := np.zeros(4, np.float32))
    bindings.run()
    np.testing.assert_array_equal(output, [1, 2, 3, 4])


def test_scalars_and_several_inputs(closing: ExitStack, runtime: Runtime) -> None:
    """A tensor without dimensions is a scalar; each input and output has its index."""
    model = Model()
    x, y = model.input((-1,), name="x"), model.input((), name="y")
    model.specify_inputs_and_outputs(
        [x, y], [model.apply(OperationType.SUB, x, y), model.apply(OperationType.ADD, y, np.float32(1))]
    )
    model.finish()
    compilation = closing.enter_context(Compilation(model, runtime.device()))
    compilation.build()
    executor = closing.enter_context(Executor(compilation))
    bindings = closing.enter_context(Bindings(executor))
    first, second = np.zeros(3, np.float32), np.zeros((), np.float32)
    bindings.set_output(1, second)
    bindings.set_input(1, LegacyTensor(DataType.FLOAT32), floats(2))
    bindings.set_input(0, LegacyTensor(DataType.FLOAT32, [3]), floats(1, 2, 3))
    with pytest.raises(InvalidParameter, match="output 0 is not set"):
        bindings.run()
    bindings.set_output(0, first)
    result = bindings.run()
    np.testing.assert_array_equal(first, [-1, 0, 1])
    assert second == 3
    assert result.shapes == ((3,), ())


def test_outputs_too_small(bindings: Bindings, executor: Executor) -> None:
    """Of unknown size they are judged by the run, which then writes nothing and says what is needed."""
    bindings.set_input(0, FOUR, floats(1, 2, 3, 4))
    bindings.set_output(0, output := bytearray(15))
    with pytest.raises(OutputTooSmall, match=r"its place has 15 bytes; the result \[4\] has 16") as refusal:
        bindings.run()
    assert output == bytes(15)
    assert refusal.value.shapes[0] == (4,)


def test_threads_run_and_allocate(bindings: Bindings) -> None:
    """All of it may be called from any thread."""
    bindings.set_input(0, FOUR, floats(1, 2, 3, 4))

    def work(caller: int) -> None:
        for turn in range(20):
            memory = bindings.allocate_output_memory(0, 16 + caller)
            bindings.set_output_memory(0, memory)
            try:
                bindings.run()
            except InvalidParameter as error:  # The memory that was set last has been freed by its thread.
                assert "given back" in str(error)
            if turn % 2:
                bindings.destroy_output_memory(0, memory)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


# ---- what is refused

INVALID_INPUTS = [
    pytest.param(None, floats(1), None, id="no tensor"),
    pytest.param("tensor", floats(1), None, id="no tensor but a text"),
    pytest.param(FOUR, None, None, id="no data"),
    pytest.param(FOUR, b"", None, id="empty data"),
    pytest.param(FOUR, bytes(32), 0, id="length 0"),
    pytest.param(FOUR, bytes(16), 17, id="length beyond the data"),
    pytest.param(FOUR, bytes(16), 15, id="length below the tensor"),
    pytest.param(FOUR, bytes(15), None, id="data below the tensor"),
    pytest.param(FOUR, floats(*range(8))[::2], None, id="data with gaps"),
    pytest.param(LegacyTensor(DataType.FLOAT32, [-1]), bytes(16), None, id="unknown dimension"),
    pytest.param(LegacyTensor(DataType.FLOAT32, [0]), bytes(16), None, id="dimension 0"),
    pytest.param(LegacyTensor(DataType.FLOAT32, [65]), bytes(260), None, id="out of the range"),
    pytest.param(LegacyTensor(DataType.FLOAT32, [2, 2]), bytes(16), None, id="rank"),
    pytest.param(LegacyTensor(DataType.FLOAT32), bytes(16), None, id="scalar"),
    pytest.param(LegacyTensor(DataType.INT32, [4]), bytes(16), None, id="data type"),
    pytest.param(LegacyTensor(DataType.UNKNOWN, [4]), bytes(16), None, id="unknown data type"),
    pytest.param(LegacyTensor(13, [4]), bytes(16), None, id="no data type"),  # type: ignore[arg-type]
    pytest.param(LegacyTensor(DataType.FLOAT32, [4], type=TensorType.ADD_ACTIVATIONTYPE), bytes(16), None, id="type"),
    pytest.param(LegacyTensor(DataType.FLOAT32, [4], type=163), bytes(16), None, id="no type"),  # type: ignore[arg-type]
    pytest.param(LegacyTensor(DataType.FLOAT32, [4], QuantParam([1.0])), bytes(16), None, id="half a quantization"),
    pytest.param(TensorDesc(DataType.FLOAT32), bytes(16), None, id="desc without a shape"),
    pytest.param(TensorDesc(DataType.FLOAT32, [-7]), bytes(16), None, id="desc with a negative dimension"),
]


@pytest.mark.parametrize(("tensor", "data", "length"), INVALID_INPUTS)
def test_inputs_that_do_not_fit(bindings: Bindings, tensor: Any, data: Any, length: int | None) -> None:
    """InvalidParameter, and what was set before stays."""
    bindings.set_input(0, FOUR, floats(1, 2, 3, 4))
    bindings.set_output(0, output := np.zeros(4, np.float32))
    with pytest.raises(InvalidParameter):
        bindings.set_input(0, tensor, data, length)
    bindings.run()
    np.testing.assert_array_equal(output, [1, 2, 3, 4])


def test_quantization_is_not_compared(bindings: Bindings) -> None:
    """A caller seldom repeats it."""
    bindings.set_input(0, LegacyTensor(DataType.FLOAT32, [4], QuantParam([2.0], [1])), floats(1, 2, 3, 4))
    bindings.set_output(0, output := np.zeros(4, np.float32))
    bindings.run()
    np.testing.assert_array_equal(output, [1, 2, 3, 4])


@pytest.mark.parametrize("buffer", [None, b"", bytes(64), floats(*range(8))[::2], bytearray(15), "text"])
def test_outputs_that_do_not_fit(closing: ExitStack, cached_daemon: DaemonProcess, buffer: Any) -> None:
    """Those of a known size are judged when they are set, also in memories."""
    bindings = closing.enter_context(Bindings(executor_of(closing, cached_daemon.address, identity_model(elements=4))))
    with pytest.raises(InvalidParameter):
        bindings.set_output(0, buffer)
    with pytest.raises(InvalidParameter):
        bindings.set_output_memory(0, bindings.allocate_output_memory(0, 15))
    bindings.set_output(0, bytearray(16))


@pytest.mark.parametrize("index", [-1, 1, None, 2**32])
def test_indices(bindings: Bindings, index: Any) -> None:
    source, target = bindings.allocate_input_memory(0, 16), bindings.allocate_output_memory(0, 16)
    for call in (
        lambda: bindings.set_input(index, FOUR, bytes(16)),
        lambda: bindings.set_output(index, bytearray(16)),
        lambda: bindings.set_input_memory(index, FOUR, source),
        lambda: bindings.set_output_memory(index, target),
        lambda: bindings.allocate_input_memory(index, 16),
        lambda: bindings.allocate_output_memory(index, 16),
        lambda: bindings.destroy_input_memory(index, source),
        lambda: bindings.destroy_output_memory(index, target),
    ):
        with pytest.raises(InvalidParameter, match="index is"):
            call()
    assert len(source.data) == len(target.data) == 16


def test_runs_need_everything_set(bindings: Bindings) -> None:
    with pytest.raises(InvalidParameter, match="input 0 is not set"):
        bindings.run()
    bindings.set_input(0, FOUR, bytes(16))
    with pytest.raises(InvalidParameter, match="output 0 is not set"):
        bindings.run()


# ---- memories


def test_memories_are_destroyed_where_they_were_allocated(
    closing: ExitStack, executor: Executor, cached_daemon: DaemonProcess
) -> None:
    """By the same executor, for the same index and side; anything else does nothing."""
    bindings = closing.enter_context(Bindings(executor))
    other = closing.enter_context(Bindings(executor_of(closing, cached_daemon.address, identity_model())))
    source, target = bindings.allocate_input_memory(0, 16), bindings.allocate_output_memory(0, 16)
    ways: list[Callable[[], None]] = [
        lambda: bindings.destroy_output_memory(0, source),
        lambda: bindings.destroy_input_memory(0, target),
        lambda: other.destroy_input_memory(0, source),
        lambda: bindings.destroy_input_memory(0, Memory(16)),
        lambda: bindings.destroy_input_memory(0, None),  # type: ignore[arg-type]
        lambda: bindings.destroy_input_memory(0, b"memory"),  # type: ignore[arg-type]
    ]
    for destroy in ways:
        with pytest.raises(InvalidParameter, match="allocated here for"):
            destroy()
    assert len(source.data) == len(target.data) == 16
    bindings.destroy_input_memory(0, source)
    bindings.destroy_output_memory(0, target)
    with pytest.raises(InvalidParameter):
        bindings.destroy_input_memory(0, source)
    with pytest.raises(InvalidParameter, match="given back"):
        _ = source.data


def test_destroyed_memories_do_not_run(bindings: Bindings) -> None:
    """A run with one is refused, and so is setting it; views of it stay good."""
    source, target = bindings.allocate_input_memory(0, 16), bindings.allocate_output_memory(0, 16)
    bindings.set_input_memory(0, FOUR, source)
    bindings.set_output_memory(0, target)
    bindings.run()
    view = source.data
    bindings.destroy_input_memory(0, source)
    with pytest.raises(InvalidParameter, match="given back"):
        bindings.run()
    with pytest.raises(InvalidParameter, match="given back"):
        bindings.set_input_memory(0, FOUR, source)
    bindings.set_input(0, FOUR, view)
    bindings.run()
    bindings.destroy_output_memory(0, target)
    with pytest.raises(InvalidParameter, match="given back"):
        bindings.run()


@pytest.mark.parametrize(
    ("length", "error"),
    [(0, InvalidParameter), (-1, InvalidParameter), (None, InvalidParameter), (GIB + 1, OutOfMemory)],
)
def test_memories_that_can_not_be(bindings: Bindings, length: Any, error: type[NnrtError]) -> None:
    for allocate in (bindings.allocate_input_memory, bindings.allocate_output_memory):
        with pytest.raises(error):
            allocate(0, length)
    assert bindings.allocate_input_memory(0, GIB).length == GIB


@pytest.mark.parametrize("memory", [None, b"memory"])
def test_what_is_no_memory(bindings: Bindings, memory: Any) -> None:
    with pytest.raises(InvalidParameter):
        bindings.set_input_memory(0, FOUR, memory)
    with pytest.raises(InvalidParameter):
        bindings.set_output_memory(0, memory)


def test_closing_frees_everything(bindings: Bindings) -> None:
    """Also what is set; a view stays good, and nothing can be allocated any more."""
    before = held()
    memories = [bindings.allocate_input_memory(0, 16) for _ in range(5)]
    view = memories[0].data
    bindings.set_input_memory(0, FOUR, memories[0])
    bindings.set_output_memory(0, bindings.allocate_output_memory(0, 16))
    bindings.run()
    bindings.close()
    bindings.close()
    assert held() == (before[0] + 1, before[1] + 1)
    view[0] = 1
    for call in (
        lambda: bindings.allocate_input_memory(0, 16),
        lambda: bindings.set_input(0, FOUR, bytes(16)),
        lambda: bindings.set_output(0, bytearray(16)),
        bindings.run,
    ):
        with pytest.raises(OperationForbidden):
            call()
    with pytest.raises(InvalidParameter):
        bindings.destroy_input_memory(0, memories[0])


def test_service_death(closing: ExitStack, start_daemon: StartDaemon) -> None:
    """A run says UnavailableDevice, as does all that needs the device; memories stay readable and can be freed."""
    daemon = start_daemon("--backend", "cached")
    executor = executor_of(closing, daemon.address, identity_model())
    bindings = closing.enter_context(Bindings(executor))
    memory = bindings.allocate_output_memory(0, 16)
    bindings.set_input(0, FOUR, floats(1, 2, 3, 4))
    bindings.set_output_memory(0, memory)
    bindings.run()
    daemon.kill()
    with pytest.raises(UnavailableDevice):
        while True:  # Until the death is known.
            bindings.run()
    for call in (
        bindings.run,
        lambda: bindings.set_input(0, FOUR, bytes(16)),
        lambda: bindings.set_output(0, bytearray(16)),
        lambda: bindings.allocate_input_memory(0, 16),
    ):
        with pytest.raises(UnavailableDevice):
            call()
    assert bytes(memory.data) == floats(1, 2, 3, 4).tobytes()
    bindings.destroy_output_memory(0, memory)


# ---- OH_NN_Tensor in models


def test_legacy_tensors_in_a_model(closing: ExitStack, runtime: Runtime) -> None:
    """One struct says it all, parameter tensors included; indices go on from those of other tensors."""
    model = Model()
    x = model.add_tensor(TensorDesc(DataType.FLOAT32, [-1]))
    y = model.add_legacy_tensor(LegacyTensor(DataType.FLOAT32, [1]))
    activation = model.add_legacy_tensor(LegacyTensor(DataType.INT8, type=TensorType.ADD_ACTIVATIONTYPE))
    z = model.add_legacy_tensor(LegacyTensor(DataType.FLOAT32, [-1], QuantParam([0.5], [3])))
    assert [tensor.index for tensor in (x, y, activation, z)] == [0, 1, 2, 3]
    assert y.desc == TensorDesc(DataType.FLOAT32, [1], Format.NHWC)
    model.set_tensor_data(y, floats(2))
    model.set_tensor_data(activation, bytes([0]))
    model.add_operation(OperationType.ADD, [activation], [x, y], [z])
    model.specify_inputs_and_outputs([x], [z])
    model.finish()
    assert [param.zero_point for param in parts_of(model).graph.output_specs[0].quant] == [3]
    with pytest.raises(OperationForbidden):
        model.add_legacy_tensor(LegacyTensor(DataType.FLOAT32))
    compilation = closing.enter_context(Compilation(model, runtime.device()))
    compilation.build()
    executor = closing.enter_context(Executor(compilation))
    np.testing.assert_array_equal(executor.run_sync([floats(1, 2)]), [[3, 4]])


@pytest.mark.parametrize("rank", [0, 10, 11, 200])
def test_ranks_of_legacy_tensors(rank: int) -> None:
    """More than a desc may be given; whether a model with them can be, is for the device to say."""
    model = Model()
    tensor = model.add_legacy_tensor(LegacyTensor(DataType.INT8, [1] * rank))
    assert tensor.desc.shape == ((1,) * rank or None)


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(None, id="none"),
        pytest.param(TensorDesc(DataType.FLOAT32, [4]), id="a desc"),
        pytest.param(LegacyTensor(13), id="data type 13"),  # type: ignore[arg-type]
        pytest.param(LegacyTensor(-1), id="data type -1"),  # type: ignore[arg-type]
        pytest.param(LegacyTensor(DataType.INT8, type=163), id="type 163"),  # type: ignore[arg-type]
        pytest.param(LegacyTensor(DataType.INT8, type=-1), id="type -1"),  # type: ignore[arg-type]
        pytest.param(LegacyTensor(DataType.INT8, None), id="no dimensions"),  # type: ignore[arg-type]
        pytest.param(LegacyTensor(DataType.INT8, [1.5]), id="half a dimension"),  # type: ignore[list-item]
        pytest.param(LegacyTensor(DataType.INT8, [0]), id="dimension 0"),
        pytest.param(LegacyTensor(DataType.INT8, [-2]), id="dimension -2"),
        pytest.param(LegacyTensor(DataType.INT8, [2**31]), id="dimension 2^31"),
        pytest.param(LegacyTensor(DataType.INT8, [1] * 201), id="201 dimensions"),
        pytest.param(LegacyTensor(DataType.INT8, [2**16, 2**16]), id="2^32 bytes"),
        pytest.param(LegacyTensor(DataType.INT8, [4], QuantParam()), id="empty quantization"),
        pytest.param(LegacyTensor(DataType.INT8, [4], QuantParam([1.0], [0], [4])), id="4 bits"),
        pytest.param(LegacyTensor(DataType.INT8, [4], QuantParam([1.0], [0, 0])), id="two zero points"),
        pytest.param(LegacyTensor(DataType.INT8, [4], "quantized"), id="a text"),  # type: ignore[arg-type]
    ],
)
def test_legacy_tensors_that_can_not_be(tensor: Any) -> None:
    """InvalidParameter, and nothing is added."""
    model = Model()
    with pytest.raises(InvalidParameter):
        model.add_legacy_tensor(tensor)
    assert model.add_legacy_tensor(LegacyTensor(DataType.INT8)).index == 0
