"""Runs that read and write tensors: what they check, and what they write."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from conftest import MakeTensor
from daemon_process import DaemonProcess
from recorder import Recorder
from tensor_runs import LONG_MS, compiled, refused

from nnrt_client import (
    Compilation,
    DataType,
    Device,
    Executor,
    Format,
    InvalidParameter,
    Model,
    NnrtError,
    NullPointer,
    OperationFailed,
    OperationType,
    OutputTooSmall,
    Runtime,
    Tensor,
    TensorDesc,
)
from nnrt_client.session.device import session_of
from nnrt_hdi import wire
from nnrt_hdi.backend import DimRange

ONE = np.ones(1, np.float32)


pytestmark = pytest.mark.usefixtures("gives_all_memory_back")


@pytest.fixture(scope="module")
def silent_daemon() -> Iterator[DaemonProcess]:
    """The identity; it does not say which shapes it takes."""
    daemon = DaemonProcess("--backend", "silent")
    yield daemon
    daemon.kill()


@pytest.fixture
def cached(closing: ExitStack, cached_daemon: DaemonProcess) -> tuple[Device, Executor]:
    return compiled(closing, cached_daemon.address)


# ---- what a run writes


def test_results_are_in_the_outputs(cached: tuple[Device, Executor], tensor: MakeTensor) -> None:
    """In their memory, with the actual shape in desc and executor, by every way to run."""
    device, executor = cached
    source, target = tensor(device, [3]), tensor(device, [-1], 64, fill=9)
    source.numpy()[:] = [1, 2, 3]
    result = executor.run_sync([source], [target])
    assert result[0] is target
    assert (target.desc.shape, result.shapes) == ((3,), ((3,),))
    np.testing.assert_array_equal(target.numpy(), [1, 2, 3])
    assert bytes(target.data_buffer[12:]) == np.full(13, 9, np.float32).tobytes()
    source.numpy()[:] = 4
    assert executor.submit([source], [target]).result(20)[0] is target
    np.testing.assert_array_equal(target.numpy(), [4, 4, 4])
    source.numpy()[:] = 5
    recorder = Recorder()
    recorder.watch(executor).run_async([source], [target], timeout_ms=LONG_MS, user_data="run")
    recorder.wait(1)
    ((outputs, error),) = recorder.done["run"]
    assert error is None
    assert outputs is not None and outputs[0] is target
    np.testing.assert_array_equal(target.numpy(), [5, 5, 5])


def test_arrays_and_tensors_may_be_mixed(runtime: Runtime, closing: ExitStack, tensor: MakeTensor) -> None:
    """Also by name, also without tensors for the outputs."""
    model = Model()
    x, y = model.input((-1, 2), name="x"), model.input((1,), name="y")
    model.specify_inputs_and_outputs([x, y], [model.apply(OperationType.SUB, x, y)])
    model.finish()
    device = runtime.device()
    compilation = closing.enter_context(Compilation(model, device))
    compilation.build()
    executor = closing.enter_context(Executor(compilation))
    source, target = tensor(device, [1, 2], fill=7), tensor(device, [1, 2])
    ways: list[Any] = [[source, ONE], {"y": ONE, "x": source}]
    for inputs in ways:
        (result,) = executor.run_sync(inputs)
        np.testing.assert_array_equal(result, [[6, 6]])
        executor.run_sync(inputs, [target])
        np.testing.assert_array_equal(target.numpy(), [[6, 6]])
    with pytest.raises(InvalidParameter, match="input 1 'y': it is float64"):
        executor.run_sync([source, np.ones(1)])


def test_offsets(cached: tuple[Device, Executor], closing: ExitStack, tensor: MakeTensor) -> None:
    """Inputs and outputs may lie anywhere in the same memory; only their bytes are read and written."""
    device, executor = cached
    whole = tensor(device, [64], fill=1)
    desc = TensorDesc(DataType.FLOAT32, [5])
    source = closing.enter_context(Tensor.from_fd(device, desc, whole.fd, 33, 13))
    target = closing.enter_context(Tensor.from_fd(device, desc, whole.fd, 256, 101))
    source.numpy()[:] = [1, 2, 3, 4, 5]
    before = bytes(whole.data_buffer)
    executor.run_sync([source], [target])
    assert bytes(whole.data_buffer) == before[:101] + before[13:33] + before[121:]


def test_dynamic_shapes_end_to_end(cached: tuple[Device, Executor], closing: ExitStack) -> None:
    """One input with room for the largest shape, whose desc says the shape of each run; an output of unknown size."""
    device, executor = cached
    least, most = executor.input_dim_range(0)
    assert (least, most) == ((1,), (64,))
    desc = executor.input_desc(0)
    source = closing.enter_context(Tensor.with_size(device, desc, most[0] * 4))
    target = closing.enter_context(Tensor.with_size(device, executor.output_desc(0), most[0] * 4))
    for length in (1, 64, 7, 1):
        source.desc.shape = [length]
        source.numpy()[:] = np.arange(length)
        result = executor.run_sync([source], [target])
        assert target.desc.shape == result.shapes[0] == (length,)
        np.testing.assert_array_equal(target.numpy(), np.arange(length))
    for length in (0, 65, -1):
        source.desc.shape = [length]
        with pytest.raises(InvalidParameter, match="input 0 'x': the shape is "):
            executor.run_sync([source], [target])
    assert target.desc.shape == (1,)


def test_scalars(closing: ExitStack, cached_daemon: DaemonProcess, tensor: MakeTensor) -> None:
    """A tensor can't be made without a shape, so [1] stands for it; the desc then has the shape of the result."""
    model = Model()
    x = model.input((), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.ADD, x, np.float32(0))])
    model.finish()
    device, executor = compiled(closing, cached_daemon.address, model)
    source, target = tensor(device, [1], fill=3), tensor(device, [1])
    for _ in range(2):
        result = executor.run_sync([source], [target])
        assert (target.desc.shape, result.shapes) == (None, ((),))
        assert target.numpy() == 3
        target.numpy()[()] = 0


def test_outputs_too_small(cached: tuple[Device, Executor], tensor: MakeTensor) -> None:
    """OutputTooSmall with nothing written, and it says what is needed."""
    device, executor = cached
    source, target = tensor(device, [5], fill=3), tensor(device, [-1], 19, fill=9)
    said = r"output 0.*: its memory has 19 bytes; the result \[5\] has 20"
    with pytest.raises(OutputTooSmall, match=said) as refusal:
        executor.run_sync([source], [target])
    assert refusal.value.shapes == ((5,),)
    assert target.desc.shape == (-1,)
    assert bytes(target.data_buffer[:16]) == np.full(4, 9, np.float32).tobytes()
    recorder = Recorder()
    recorder.watch(executor).run_async([source], [target], timeout_ms=LONG_MS, user_data="run")
    recorder.wait(1)
    ((outputs, error),) = recorder.done["run"]
    assert outputs == [target]
    assert isinstance(error, OutputTooSmall)


@pytest.mark.parametrize("rows", [2, 1 << 14])
def test_all_outputs_or_none(each_runtime: Runtime, closing: ExitStack, tensor: MakeTensor, rows: int) -> None:
    """If the second is too small, the first is left as it was, even if the device writes large ones itself."""
    model = Model()
    x = model.input((-1, 4), name="x")
    model.specify_inputs_and_outputs([x], model.apply(OperationType.SPLIT, x, axis=1, output_num=2, size_splits=[1, 3]))
    model.finish()
    device = each_runtime.device()
    compilation = closing.enter_context(Compilation(model, device))
    compilation.build()
    executor = closing.enter_context(Executor(compilation))
    source = tensor(device, [rows, 4], fill=3)
    first, second = tensor(device, [-1, 1], rows * 4, fill=9), tensor(device, [-1, 3], rows * 12 - 4, fill=9)
    with pytest.raises(OutputTooSmall, match="output 1") as refusal:
        executor.run_sync([source], [first, second])
    assert refusal.value.shapes == ((rows, 1), (rows, 3))
    assert first.desc.shape == (-1, 1)
    assert bytes(first.data_buffer) == np.full(rows, 9, np.float32).tobytes()
    larger = tensor(device, [-1, 3], rows * 12)
    executor.run_sync([source], [first, larger])
    np.testing.assert_array_equal(first.numpy(), np.full((rows, 1), 3))
    np.testing.assert_array_equal(larger.numpy(), np.full((rows, 3), 3))


# ---- what a run checks, in this order


@pytest.fixture(params=["cached", "silent"])
def fixed(
    request: pytest.FixtureRequest, closing: ExitStack, cached_daemon: DaemonProcess, silent_daemon: DaemonProcess
) -> tuple[Device, Executor]:
    """A model of exactly four elements, on a device that says what it takes and on one that doesn't."""
    model = Model()
    x = model.input((4,), name="x", format=Format.NHWC)
    y = model.apply(
        OperationType.ADD, x, np.zeros(1, np.float32), output=TensorDesc(DataType.FLOAT32, [4], Format.NHWC)
    )
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    daemon = {"cached": cached_daemon, "silent": silent_daemon}[request.param]
    return compiled(closing, daemon.address, model)


Bad = Callable[[MakeTensor, Device], Any]

# From the first check to the last; each row is wrong in what stands in the rows below it, too.
BAD_INPUTS: list[tuple[str, Bad, type[NnrtError]]] = [
    ("rank", lambda make, device: make(device, [2, 2], data_type=DataType.INT32), InvalidParameter),
    ("dimension", lambda make, device: make(device, [3], data_type=DataType.INT32), InvalidParameter),
    ("unknown", lambda make, device: make(device, [-1], 16), InvalidParameter),
    ("data type", lambda make, device: make(device, [4], data_type=DataType.INT32), InvalidParameter),
    ("format", lambda make, device: make(device, [4], format=Format.NCHW), InvalidParameter),
]
BAD_OUTPUTS: list[tuple[str, Bad, type[NnrtError]]] = [
    ("no tensor", lambda make, device: ONE, InvalidParameter),
    ("data type", lambda make, device: make(device, [4], data_type=DataType.INT32), InvalidParameter),
    ("format", lambda make, device: make(device, [4], format=Format.NCHW), InvalidParameter),
    ("rank", lambda make, device: make(device, [2, 2]), InvalidParameter),
    ("dimension", lambda make, device: make(device, [5]), InvalidParameter),
    ("too small", lambda make, device: make(device, [-1], 15), OutputTooSmall),
]


@pytest.mark.parametrize(("bad", "error"), [pytest.param(*row[1:], id=row[0]) for row in BAD_INPUTS])
def test_inputs_that_do_not_fit(
    fixed: tuple[Device, Executor], tensor: MakeTensor, bad: Bad, error: type[NnrtError]
) -> None:
    device, executor = fixed
    good = tensor(device, [4])
    assert refused(executor, [bad(tensor, device)], [good]) is error
    assert refused(executor, [bad(tensor, device)], None) is error
    executor.run_sync([good], [good])


@pytest.mark.parametrize(("bad", "error"), [pytest.param(*row[1:], id=row[0]) for row in BAD_OUTPUTS])
def test_outputs_that_do_not_fit(
    fixed: tuple[Device, Executor], tensor: MakeTensor, bad: Bad, error: type[NnrtError]
) -> None:
    device, executor = fixed
    good = tensor(device, [4])
    assert refused(executor, [good], [bad(tensor, device)]) is error
    executor.run_sync([good], [good])


@pytest.mark.parametrize("format", [Format.NONE, Format.ND, Format.NHWC])
def test_formats_that_fit(fixed: tuple[Device, Executor], tensor: MakeTensor, format: Format) -> None:
    """The model's, and those that say nothing."""
    device, executor = fixed
    one = tensor(device, [4], format=format)
    executor.run_sync([one], [one])


def shrunk(made: Tensor, elements: int) -> Tensor:
    """A tensor whose desc says more than its memory holds."""
    made.desc.shape = [elements]
    return made


def test_the_order_of_checks(closing: ExitStack, cached_daemon: DaemonProcess, tensor: MakeTensor) -> None:
    """Each call is wrong in one thing more than the one after it."""
    device, executor = compiled(closing, cached_daemon.address)
    good, wrong_type = tensor(device, [4]), tensor(device, [4], data_type=DataType.INT32)
    small = shrunk(tensor(device, [4]), 5)
    out_of_range = shrunk(tensor(device, [4]), 65)
    gone = tensor(device, [4])
    gone.close()
    assert refused(executor, [None, good], [None]) is InvalidParameter
    assert refused(executor, [None], [None, None]) is InvalidParameter
    assert refused(executor, [None], []) is InvalidParameter
    assert refused(executor, [None], good) is InvalidParameter
    assert refused(executor, good, [good]) is InvalidParameter
    assert refused(executor, [None], [None]) is NullPointer
    assert refused(executor, [out_of_range], [None]) is InvalidParameter
    assert refused(executor, [out_of_range], [small]) is InvalidParameter
    assert refused(executor, [small], [None]) is InvalidParameter
    assert refused(executor, [small], [wrong_type]) is OperationFailed
    assert refused(executor, [wrong_type], [small]) is OperationFailed
    assert refused(executor, [good], [wrong_type]) is InvalidParameter
    assert refused(executor, [gone], [good]) is InvalidParameter
    assert refused(executor, [good], [gone]) is InvalidParameter
    executor.run_sync([good], [good])


def test_missing_inputs_on_a_device_without_ranges(
    closing: ExitStack, silent_daemon: DaemonProcess, tensor: MakeTensor
) -> None:
    """There the code is another, as in NNRt, and dimensions are not compared with any."""
    device, executor = compiled(closing, silent_daemon.address)
    good = tensor(device, [100], fill=2)
    assert refused(executor, [None], [good]) is InvalidParameter
    executor.run_sync([good], [good])


def test_ranges_are_asked_for_once_and_only_for_tensors(
    closing: ExitStack, cached_daemon: DaemonProcess, tensor: MakeTensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays do without; what was said is kept, the daemon's death included."""
    device, executor = compiled(closing, cached_daemon.address)
    connection = session_of(device)
    asked: list[str] = []
    call = connection.call

    def counted(*args: Any) -> Any:
        asked.append(args[0])
        return call(*args)

    monkeypatch.setattr(connection, "call", counted)
    executor.run_sync([ONE])
    assert asked == []
    for _ in range(3):
        executor.run_sync([tensor(device, [1])])
        executor.input_dim_range(0)
    assert asked == ["PreparedModel.GetInputDimRanges"]


def test_ranges_that_make_no_sense(
    cached: tuple[Device, Executor], tensor: MakeTensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that gives too few, or ends that don't belong together, is not believed."""
    device, executor = cached
    connection = session_of(device)
    for ranges in ([], [DimRange((1,), (2, 3))], [DimRange((1,), (2,))] * 2):
        reply = wire.dim_ranges_message(ranges)
        with monkeypatch.context() as patch:
            patch.setattr(connection, "call", lambda *args, reply=reply: reply)
            with pytest.raises(InvalidParameter, match="as the ranges of 1 inputs"):
                executor.input_dim_range(0)
            with pytest.raises(InvalidParameter, match="as the ranges of 1 inputs"):
                executor.run_sync([tensor(device, [1])])
    assert executor.input_dim_range(0) == ((1,), (64,))
